"""What PyTorch publishes: releases, their builds, and what each build needs of a machine.

Every fact is data (`data/catalogue.toml`, or a user's own file); nothing here holds a backend's tag.
"""

from torchenv.catalogue.builds import Backend, Cpu, Cuda, Rocm, Xpu
from torchenv.catalogue.document import SCHEMA, parse
from torchenv.catalogue.releases import Catalogue, Companion, Release

__all__ = ["SCHEMA", "Backend", "Catalogue", "Companion", "Cpu", "Cuda", "Release", "Rocm", "Xpu", "parse"]
