"""Whether an index answers at all, known within seconds."""

from __future__ import annotations

import sys

from torchenv.system.process import Command, End, Runner

# Any answer will do, also a refusal: the index is there. It runs in a child because looking up a
# name has no limit of its own, and the child knows of certificates, proxies and netrc as uv does.
_ASK = """
import sys, urllib.error, urllib.request
try:
    request = urllib.request.Request(sys.argv[1], method="HEAD", headers={"User-Agent": "torchenv"})
    urllib.request.urlopen(request, timeout=float(sys.argv[2])).close()
except urllib.error.HTTPError:
    pass
except urllib.error.URLError as error:
    sys.exit(str(error.reason))
except OSError as error:
    sys.exit(str(error) or type(error).__name__)
"""


def why_unreachable(run: Runner, url: str, *, seconds: float = 5) -> str | None:
    """Describe in a few words why nothing answers at `url`; None if something does."""
    command = Command((sys.executable, "-I", "-c", _ASK, url, str(seconds)))
    done = run(command, timeout=seconds)
    if done.end is End.OUT_OF_TIME:
        return f"no answer within {seconds:g} s"
    return None if done.code == 0 else done.reason()
