#!/bin/sh
# What the nodes of a cluster have, and one plan for all of them:
#     sbatch --partition gpu --nodes 16 scripts/fleet/slurm-probe.sh hosts
# writes hosts/NODE.json for each node, and into the job's output the table of `torchenv plan`.
#SBATCH --job-name=torchenv-probe
#SBATCH --ntasks-per-node=1
#SBATCH --time=00:10:00
set -eu
TORCHENV_HOSTS=${1:?name the directory for the host files}
export TORCHENV_HOSTS
mkdir -p "$TORCHENV_HOSTS"

# shellcheck disable=SC2016  # each node fills in its own name
srun --ntasks-per-node=1 sh -c 'torchenv probe --quiet -o "$TORCHENV_HOSTS/${SLURMD_NODENAME:-$(hostname)}.json"'

set --
for file in "$TORCHENV_HOSTS"/*.json; do
    set -- "$@" --host "$file"
done
torchenv plan "$@"
