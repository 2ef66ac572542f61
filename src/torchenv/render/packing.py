"""What was made one file, as people read it."""

from __future__ import annotations

import shlex

from torchenv.system.packfile import PackFacts


def describe_pack(file: str, size: int, facts: PackFacts) -> str:
    """Describe a pack that was written, with the command that starts something in it."""
    return (
        f"{file} holds environment {facts.environment}: {facts.files} files, {facts.bytes / 2**30:.1f} GiB"
        f" in {size / 2**30:.1f} GiB\n"
        f"next: {shlex.join(['torchenv', 'run', '--packed', file, '--', 'python', 'train.py'])}"
    )
