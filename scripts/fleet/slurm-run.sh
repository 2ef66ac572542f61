#!/bin/sh
# A command on every node, each in the environment that was locked for a node like it:
#     sbatch --partition gpu --nodes 16 --chdir PROJECT scripts/fleet/slurm-run.sh python train.py
# `torchenv sync` prints the number of that environment, and takes no time where it is built already.
# With --packed the nodes get the file of slurm-pack.sh by sbcast, and read nothing else from shared storage:
#     sbatch --partition gpu --nodes 16 scripts/fleet/slurm-run.sh --packed FILE.tar.zst python train.py
#SBATCH --job-name=torchenv-run
set -eu
: "${1:?name the command to run}"
if [ "$1" = --packed ]; then
    file=${2:?name the file that slurm-pack.sh wrote}
    shift 2
    : "${1:?name the command to run}"
    here=${TMPDIR:-/tmp}/${SLURM_JOB_ID:-0}-$(basename "$file")
    sbcast --force "$file" "$here"
    exec srun torchenv run --packed "$here" -- "$@"
fi
# shellcheck disable=SC2016  # each task asks for its own environment
exec srun sh -c 'number=$(torchenv sync --quiet) && exec torchenv run -e "$number" -- "$@"' sh "$@"
