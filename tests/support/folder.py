"""A project in a folder, with a build tool of its own, which needs nothing from any index."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

# PEP 517 and 660 in the fewest lines: a wheel with the module, or with a .pth that leads to it.
_BACKEND = """\
import os
import zipfile

NAME, MODULE = {name!r}, {module!r}


def _wheel(directory, files):
    stem = f"{{MODULE}}-1.0"
    meta = f"Metadata-Version: 2.1\\nName: {{NAME}}\\nVersion: 1.0\\n" + "".join(
        f"Requires-Dist: {{each}}\\n" for each in {requires!r}
    )
    wheel = "Wheel-Version: 1.0\\nGenerator: by hand\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
    files = {{**files, f"{{stem}}.dist-info/METADATA": meta, f"{{stem}}.dist-info/WHEEL": wheel}}
    record = "".join(f"{{name}},,\\n" for name in files) + f"{{stem}}.dist-info/RECORD,,\\n"
    with zipfile.ZipFile(os.path.join(directory, f"{{stem}}-py3-none-any.whl"), "w") as archive:
        for name, text in {{**files, f"{{stem}}.dist-info/RECORD": record}}.items():
            archive.writestr(name, text)
    return f"{{stem}}-py3-none-any.whl"


def build_wheel(directory, config_settings=None, metadata_directory=None):
    with open(f"{{MODULE}}.py") as file:
        return _wheel(directory, {{f"{{MODULE}}.py": file.read()}})


def build_editable(directory, config_settings=None, metadata_directory=None):
    return _wheel(directory, {{f"_{{MODULE}}.pth": os.getcwd() + "\\n"}})
"""


def write_package(directory: Path, name: str, requires: Sequence[str] = (), *, more: str = "") -> None:
    """Write a package whose module says where it is; `more` goes to the end of its pyproject.toml."""
    module = name.replace("-", "_")
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{module}.py").write_text("WHERE = __file__\n", "utf-8")
    text = _BACKEND.format(name=name, module=module, requires=list(requires))
    (directory / "backend.py").write_text(text, "utf-8")
    listed = ", ".join(f'"{line}"' for line in requires)
    (directory / "pyproject.toml").write_text(
        f'[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        f'[project]\nname = "{name}"\nversion = "1.0"\ndependencies = [{listed}]\n{more}',
        "utf-8",
    )
