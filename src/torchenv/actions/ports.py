"""What an action needs of the outside: disk, installer, programs, network, a clock and a listener."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from torchenv.index.pages import Fetch
from torchenv.installers import Installer
from torchenv.system.process import Runner
from torchenv.system.values import frozen
from torchenv.workspace.store import Store

Say = Callable[[str], None]


@frozen(kw_only=True)
class Ports:
    """The ports of one run. `say` takes news for people, `now` gives the time in UTC.

    `system` is the one it runs on, by the name that checkpoints and hosts know it by.
    """

    store: Store
    installer: Installer
    run: Runner
    fetch: Fetch
    say: Say
    now: Callable[[], datetime]
    system: str
