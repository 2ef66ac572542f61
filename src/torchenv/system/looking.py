"""Look for files where this user may not be let in: `Path.glob` raises there, `os.path.exists` does not."""

from __future__ import annotations

import os
from pathlib import Path

# Of these other machines may change files, as they are mounted by several.
_SHARED = {"9p", "afs", "beegfs", "ceph", "cifs", "gfs2", "glusterfs", "gpfs", "lustre", "nfs", "nfs4"}
_SHARED |= {"ocfs2", "orangefs", "smb3", "smbfs", "virtiofs", "wekafs"}


def find_paths(directory: Path, pattern: str) -> list[Path]:
    """Return what matches in a directory, in order; nothing where this user may not look."""
    try:
        return sorted(directory.glob(pattern))
    except OSError:
        return []


def resolve_parents(path: Path) -> Path:
    """Return a path without `..`: what lies before one is resolved first, as it may be a link."""
    parts = path.parts
    last = max((place for place, part in enumerate(parts) if part == ".."), default=None)
    if last is None:
        return path
    return Path(os.path.realpath(Path(*parts[: last + 1])), *parts[last + 1 :])


def is_shared(path: str, mounts: Path = Path("/proc/self/mountinfo")) -> bool:
    """Return whether other machines may write where a path is, as Linux tells; raises `OSError`."""
    device = os.stat(path).st_dev  # noqa: PTH116
    # 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in mounts.read_text("utf-8", "replace").splitlines():
        before, _, after = line.partition(" - ")
        if before.split(" ", 3)[2:3] == [wanted]:
            kind = after.partition(" ")[0]
            return kind in _SHARED or kind.startswith("fuse.")
    return False
