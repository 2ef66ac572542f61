"""How long torchenv takes over the files of one environment, as ratios within one run.

    python scripts/bench/environments.py DIRECTORY

DIRECTORY is an environment with torch, such as one that `torchenv create` made. It is only read; what
isolation costs is measured on a hard-linked copy beside it, which is deleted afterwards.

ext4 looks past every inode that was freed in the last minutes before it gives out a new one: after
thousands of files were deleted, making one may take 0.6 ms and not 0.02. Measure isolation before
anything was deleted.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from torchenv.environment.base_python import BasePython
from torchenv.environment.fingerprint import fingerprint
from torchenv.environment.inspect import describe
from torchenv.environment.unshare import Isolated, isolate
from torchenv.environment.verify import digest_of_base, verify

Result = TypeVar("Result")


def main(directory: Path) -> None:
    installation = describe(directory)
    files = [str(each) for each in installation.path.rglob("*") if each.is_file() and not each.is_symlink()]
    size = sum(Path(each).stat().st_size for each in files)
    print(f"{len(files)} files, {size / 1e9:.2f} GB, {os.cpu_count()} cores")

    # Once before, so that nobody is measured by the disk.
    sha256sum(files)
    sums, _ = timed(lambda: sha256sum(files))
    looked, before = timed(lambda: fingerprint(installation))
    print(f"fingerprint: {looked:.2f} s, {looked / sums:.2f} of sha256sum on every core ({sums:.2f} s)")

    base = BasePython("", str(installation.base), digest_of_base(installation.base or Path()))
    proven, findings = timed(lambda: verify(installation, base=base, before=before))
    print(f"verify: {proven:.2f} s, {proven / sums:.2f} of sha256sum (at most 1.5); {len(findings)} findings")

    separated, isolated = timed_isolation(installation.path)
    share = isolated.bytes / size
    print(f"isolation: {separated:.2f} s (at most 4), {share:.1%} of the bytes (at most 6 %)")


def timed_isolation(directory: Path) -> tuple[float, Isolated]:
    linked = directory.with_name(f"{directory.name}.bench")
    try:
        shutil.copytree(directory, linked, symlinks=True, copy_function=os.link)
        return timed(lambda: isolate(linked))
    finally:
        shutil.rmtree(linked)


def sha256sum(files: list[str]) -> None:
    names = b"\0".join(os.fsencode(each) for each in files)
    command = ["xargs", "-0", "-n", "200", "-P", str(os.cpu_count()), "sha256sum"]
    subprocess.run(command, input=names, stdout=subprocess.DEVNULL, check=True)


def timed(act: Callable[[], Result]) -> tuple[float, Result]:
    start = time.perf_counter()
    result = act()
    return time.perf_counter() - start, result


if __name__ == "__main__":
    main(Path(sys.argv[1]))
