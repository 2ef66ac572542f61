"""Programs that are denied what their rights do not allow, also where root starts them."""

from __future__ import annotations

import ctypes
import os
import sys

# linux/prctl.h
_PR_CAPBSET_DROP = 24
_LAST_CAPABILITY = 63


def may_be_denied() -> bool:
    """Whether rights count here for a program that begins with `drop_capabilities`."""
    return os.name == "posix" and (sys.platform == "linux" or os.geteuid() != 0)


def drop_capabilities() -> None:
    """Give up what lets root pass by every right; for `preexec_fn`, and final once a program is started."""
    if sys.platform == "linux" and os.geteuid() == 0:
        prctl = ctypes.CDLL(None).prctl
        for capability in range(_LAST_CAPABILITY + 1):
            prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
