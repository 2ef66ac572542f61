"""What is behind an error that an import ends with, as far as the files of the environment tell."""

from __future__ import annotations

import os
import re
from fnmatch import fnmatch
from pathlib import Path

from torchenv.actions.causes.packages import find_companions
from torchenv.catalogue.releases import Catalogue
from torchenv.environment.inspect import Installation, distributions

# ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory
# ValueError: libcudnn.so.*[0-9] not found in the system path ['/home/u/env/lib/python3.12/site-packages', …
_MISSING = re.compile(r"([\w.+-]+\.so[\w.*\[\]-]*)(?:: cannot open shared| not found in the system path)")

# undefined symbol: curandCreateGenerator
_UNDEFINED = re.compile(r"undefined symbol: (\w+)")


def explain_import_failure(
    message: str, package: str, installation: Installation, catalogue: Catalogue
) -> str:
    """Return the message of a failed import of a package with what is known of its cause behind it."""
    cause = _library(message, installation) or _find_unpaired(package, installation, catalogue)
    return f"{message} ({cause})" if cause else message


def _library(message: str, installation: Installation) -> str | None:
    if match := _MISSING.search(message):
        return _missing(match[1], installation)
    match = _UNDEFINED.search(message)
    return _CURAND if match and match[1].startswith("curand") else None


def _missing(library: str, installation: Installation) -> str:
    for package in distributions(installation):
        for line in package.record():
            if fnmatch(Path(line.path).name, library) and not os.path.exists(line.path):
                return (
                    f"{line.path} of {package.name} {package.version} is missing: build the environment again"
                )
    if library.startswith("libcurand"):
        return _CURAND
    return f"no package in this environment brings {library}"


_CURAND = (
    "torch no longer brings cuRAND from 2.15 on: add nvidia-curand to the profile's packages, and load it"
    " before the extension or give the extension an RPATH to it"
)


def _find_unpaired(package: str, installation: Installation, catalogue: Catalogue) -> str | None:
    found = find_companions(installation, distributions(installation), catalogue)
    return next((finding.message for name, finding in found if name == package), None)
