"""What was made one file, as people read it."""

from __future__ import annotations

import shlex
from pathlib import PurePath

from torchenv.actions.bundle import Bundle
from torchenv.lockfile.lockset import LockedTarget
from torchenv.system.packfile import PackFacts


def describe_pack(file: str, size: int, facts: PackFacts) -> str:
    """Describe a pack that was written, with the command that starts something in it."""
    return (
        f"{file} holds environment {facts.environment}: {facts.files} files, {facts.bytes / 2**30:.1f} GiB"
        f" in {size / 2**30:.1f} GiB\n"
        f"next: {shlex.join(['torchenv', 'run', '--packed', file, '--', 'python', 'train.py'])}"
    )


def describe_bundle(file: str, size: int, made: Bundle) -> str:
    """Describe a bundle that was written, with the commands for the machine that it is for."""
    pythons = f"Python {', '.join(made.interpreters)}" if made.interpreters else "no Python"
    unpack = shlex.join(["tar", "-xf", PurePath(file).name])
    return (
        f"{file} holds target {made.target}: {len(made.files)} files, {size / 2**30:.1f} GiB, with {pythons},"
        f" uv {made.uv} and torchenv {made.torchenv}\n"
        f"on the machine without a network: {unpack} && sh {made.target}/build.sh"
    )


def write_build_script(target: LockedTarget, *, tool_python: str) -> str:
    """Return the script of a bundle, which builds the environment of a target from what lies beside it."""
    minor = target.python
    system, _, machine = target.platform.partition("-")
    kernel = {"linux": "Linux", "darwin": "Darwin"}.get(system, system)
    pythons = " ".join(dict.fromkeys((target.python, tool_python)))
    return f"""\
#!/bin/sh
# Builds target {target.name} without a network: torch {target.torch} for {target.platform}, Python {minor}.
#     sh build.sh [PROJECT]
# All comes from this directory, which has to stay: torchenv and the Python of the environment live in it.
# The environment is built in it too, or in PROJECT, a checkout with the same lock.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
project=$(CDPATH='' cd -- "${{1:-$here}}" && pwd -P)
cd "$here"

[ "$(uname -s) $(uname -m)" = "{kernel} {machine}" ] || {{
    echo "error: this bundle is for {target.platform}, and this machine is $(uname -s) $(uname -m)" >&2
    exit 3
}}
if command -v sha256sum >/dev/null; then sums=sha256sum; else sums="shasum -a 256"; fi
$sums -c SHA256SUMS >/dev/null || {{
    echo "error: the bundle is damaged: copy it again" >&2
    exit 2
}}

for version in {pythons}; do
    if [ -f "python-$version.tar.gz" ] && [ ! -d "python-$version" ]; then
        rm -rf python.new && mkdir python.new
        tar -xzf "python-$version.tar.gz" -C python.new
        mv python.new/* "python-$version"
        rmdir python.new
    fi
    PATH=$here/python-$version/bin:$PATH
    command -v "python$version" >/dev/null || {{
        echo "error: there is no python$version on this machine, and none in the bundle" >&2
        echo "hint: install Python $version, then run this script again" >&2
        exit 4
    }}
done
export PATH

if [ ! -x torchenv/bin/torchenv ]; then
    rm -rf torchenv uv.new
    python=$(command -v python{tool_python})
    "$python" -I -m zipfile -e tools/uv-*.whl uv.new
    uv=$(echo "$here"/uv.new/*.data/scripts/uv)
    chmod +x "$uv"
    "$uv" venv --quiet --offline --no-config --no-project --python "$python" torchenv
    "$uv" pip install --quiet --offline --no-config --no-index --find-links tools --no-deps \\
        --require-hashes --python torchenv/bin/python --requirement tools.txt
    rm -rf uv.new
fi

cd "$project"
"$here/torchenv/bin/torchenv" sync {target.name} --offline --wheels "$here/wheels" --use
echo "next: cd '$project' && '$here/torchenv/bin/torchenv' run -- python train.py" >&2
"""
