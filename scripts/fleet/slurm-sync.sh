#!/bin/sh
# The locked environment on every node, before the jobs that need it:
#     sbatch --partition gpu --nodes 16 --chdir PROJECT scripts/fleet/slurm-sync.sh [options of `torchenv sync`]
# Where the workspace is on shared storage (TORCHENV_HOME), the first node of each kind builds and the others
# wait and find it built. Where it is on a disk of the node, each node builds its own.
#SBATCH --job-name=torchenv-sync
#SBATCH --ntasks-per-node=1
#SBATCH --time=01:00:00
set -eu
# One node without a target is no reason to stop the others.
exec srun --ntasks-per-node=1 --kill-on-bad-exit=0 torchenv sync "$@"
