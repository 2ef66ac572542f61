#!/bin/sh
# The locked environment of one kind of node as one file on shared storage, for slurm-run.sh --packed:
#     sbatch --partition gpu --nodes 1 --chdir PROJECT scripts/fleet/slurm-pack.sh FILE.tar.zst
# Nodes of another kind have a file of their own: name their partition or --constraint.
#SBATCH --job-name=torchenv-pack
#SBATCH --nodes=1
#SBATCH --time=01:00:00
set -eu
file=${1:?name the file to write, which ends in .tar.zst or .squashfs}
number=$(torchenv sync --quiet)
exec torchenv pack "$number" "$file"
