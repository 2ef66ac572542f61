"""The start-up file of an environment that torchenv built: dormant until a run sets a variable."""

from __future__ import annotations

STARTUP_FILE = "torchenv.pth"

# Python runs a line of a .pth file that begins with `import`, with -I and -E, too, which ignore PYTHONPATH.
STARTUP_TEXT = (
    'import os; p = os.environ.get("TORCHENV_HOOK");'
    ' p and exec(compile(open(p, encoding="utf-8").read(), p, "exec"),'
    ' {"__name__": "torchenv_hook", "__file__": p})\n'
)
