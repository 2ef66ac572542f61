"""Lets a reader have only so much memory and time."""

from __future__ import annotations

import os
import resource
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

# Bytes that a reader may take beyond what is loaded, and seconds of a processor. The limit is one of address
# space, of which the C library reserves 64 MiB at once.
MEMORY = 128 << 20
SECONDS = 30


def ends_within_limits(read: Callable[[], object]) -> bool:
    """Return whether a child ends well that reads within these limits; what it raised is printed."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            _limit_resources()
            read()
            code = 0
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _limit_resources() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    for kind, most in (
        (resource.RLIMIT_AS, pages * resource.getpagesize() + MEMORY),
        (resource.RLIMIT_CPU, SECONDS),
    ):
        resource.setrlimit(kind, (most, most))
