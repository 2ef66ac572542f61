"""What lies in the place of a checkpoint that is elsewhere: a pointer of Git LFS, a web page."""

from __future__ import annotations

from torchenv.checkpoints.values import CheckpointNote

HEAD = 256  # bytes that tell
_LFS = b"version https://git-lfs.github.com/spec/"
_ANNEX = (b"/annex/objects/", b"../.git/annex/objects/", b".git/annex/objects/")
_PAGES = (b"<!doctype html", b"<html", b"<?xml")


def find_stand_in(head: bytes, size: int) -> CheckpointNote | None:
    """Return what a file is by its first bytes, where that is no checkpoint but stands for one; else None."""
    if size == 0:
        return CheckpointNote("empty", "the file is empty")
    if head.startswith(_LFS):
        said = "it is a pointer of Git LFS, and its content was not downloaded: `git lfs pull` brings it"
        return CheckpointNote("git-lfs-pointer", said)
    if head.startswith(_ANNEX):
        said = "it is a pointer of git-annex, and its content was not downloaded: `git annex get` brings it"
        return CheckpointNote("git-annex-pointer", said)
    if head.lstrip().lower().startswith(_PAGES):
        return CheckpointNote("web-page", "it is a web page: the download asked for a login or a consent")
    return None
