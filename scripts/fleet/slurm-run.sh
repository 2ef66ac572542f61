#!/bin/sh
# A command on every node, each in the environment that was locked for a node like it:
#     sbatch --partition gpu --nodes 16 --chdir PROJECT scripts/fleet/slurm-run.sh python train.py
# `torchenv sync` prints the number of that environment, and takes no time where it is built already.
#SBATCH --job-name=torchenv-run
set -eu
: "${1:?name the command to run}"
# shellcheck disable=SC2016  # each task asks for its own environment
exec srun sh -c 'number=$(torchenv sync --quiet) && exec torchenv run -e "$number" -- "$@"' sh "$@"
