"""Environments on disk as installers leave them: pyvenv.cfg and dist-info folders, nothing that runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from torchenv.environment.inspect import Installation, describe


class Site:
    """A venv in a folder, to which packages are added one by one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.packages = path / "lib" / "python3.12" / "site-packages"
        self.packages.mkdir(parents=True)
        (path / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.12.4\n")

    def add(
        self,
        name: str,
        version: str,
        *requires: str,
        requested: bool = False,
        direct_url: Mapping[str, object] | None = None,
        installer: str = "pip",
        files: Mapping[str, bytes] | None = None,
    ) -> None:
        info = self.packages / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        lines = ["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}"]
        lines += [f"Requires-Dist: {require}" for require in requires]
        (info / "METADATA").write_text("\n".join(lines) + "\n\nWhat it is for.\n")
        (info / "INSTALLER").write_text(f"{installer}\n")
        if requested:
            (info / "REQUESTED").write_text("")
        if direct_url is not None:
            (info / "direct_url.json").write_text(json.dumps(direct_url))
        record = []
        for file, content in (files or {}).items():
            path = self.packages / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            record.append(f"{file},,{len(content)}")
        (info / "RECORD").write_text("\n".join(record) + "\n")

    def add_torch(self, version: str = "2.14.1", label: str = "cu130") -> None:
        """Torch as its wheel of the package index leaves it, with what it brings along."""
        said = f"__version__ = '{version}+{label}'\n".encode()
        self.add(
            "torch",
            version,
            "filelock",
            "sympy>=1.13.3",
            'nvidia-cudnn-cu13==9.24.0.43; platform_system == "Linux"',
            'triton~=3.8.0; platform_system == "Linux"',
            'optree>=0.13; extra == "optree"',
            requested=True,
            files={"torch/version.py": said},
        )
        self.add("filelock", "3.20.0")
        self.add("sympy", "1.14.0", "mpmath<1.4,>=1.1.0")
        self.add("mpmath", "1.3.0")
        self.add("nvidia-cudnn-cu13", "9.24.0.43")
        self.add("triton", "3.8.0")

    @property
    def installation(self) -> Installation:
        return describe(self.path)
