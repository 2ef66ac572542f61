"""The interpreter that an environment stands on."""

from __future__ import annotations

from torchenv.system.values import frozen


@frozen
class BasePython:
    """The interpreter an environment stands on; without it nothing in the environment runs."""

    version: str
    path: str
    digest: str | None = None
