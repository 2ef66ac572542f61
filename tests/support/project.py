"""A project of a team, locked and synced through the command line's own modules on a loopback index."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.index import Index

from torchenv.cli import main
from torchenv.installers import interpreter_in
from torchenv.system.process import Command, Programs

MINOR = f"{sys.version_info[0]}.{sys.version_info[1]}"

# The team of the issue: what each machine is, as people write it.
TEAM = f"""\
# The team's machines.
schema = 1
name = "team"

[torch]
version = "2.15"
packages = ["torchvision"]

[packages]
requirements = ["lightning"]

[index]
torch = "{{root}}/whl"
packages = "{{root}}/simple"

[[target]]
name = "ada"            # the workstation under the desk
platform = "linux-x86_64"
python = "{MINOR}"
backend = "cu132"

[[target]]
name = "v100"
platform = "linux-x86_64"
python = "{MINOR}"
backend = "cu126"

[[target]]
name = "rocm7-14"
platform = "linux-x86_64"
python = "{MINOR}"
backend = "rocm7.14"

[[target]]
name = "ci"
platform = "linux-x86_64"
python = "{MINOR}"
backend = "cpu"

[[target]]
name = "mac"
platform = "darwin-arm64"
python = "{MINOR}"

[[target]]
name = "windows"
platform = "windows-x86_64"
python = "{MINOR}"
backend = "cu132"
"""


# Two targets are enough here, and take a third of the time.
PAIR = f"""\
schema = 1
name = "pair"

[torch]
version = "2.15"

[packages]
requirements = [
    "lightning",
]

[index]
torch = "{{root}}/whl"
packages = "{{root}}/simple"

[[target]]
name = "ci"
platform = "linux-x86_64"
python = "{MINOR}"
backend = "cpu"

[[target]]
name = "ada"
platform = "linux-x86_64"
python = "{MINOR}"
backend = "cu132"
"""


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command gave back: its exit code, what a program reads, what a person reads."""

    code: int
    out: str
    said: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Project:
    """A directory with a `torchenv.toml`, and the commands that are run in it."""

    directory: Path
    index: Index
    environ: dict[str, str]
    profile: str = TEAM
    more: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.write("torchenv.toml", self.profile.replace("{root}", self.index.root))

    def run(self, *words: str, **variables: str) -> Ran:
        """Call the command line with the words, in the project's directory."""
        out, err = io.StringIO(), io.StringIO()
        environ = {**self.environ, **self.more, **variables}
        code = main(words, environ, self.directory, None, out, err)
        return Ran(code, out.getvalue().rstrip("\n"), err.getvalue().rstrip("\n"))

    def write(self, name: str, text: str) -> None:
        (self.directory / name).write_text(text, "utf-8")

    def read(self, name: str) -> str:
        return (self.directory / name).read_text("utf-8")

    def change(self, name: str, old: str, new: str) -> None:
        text = self.read(name)
        assert old in text
        self.write(name, text.replace(old, new))

    def locks(self) -> dict[str, bytes]:
        """The bytes of every file that `lock` writes."""
        found = (*self.directory.glob("pylock.*.toml"), *self.directory.glob("torchenv.lock.toml"))
        return {item.name: item.read_bytes() for item in found}


def said_by(environment: Path, code: str) -> str:
    """Ask the Python of an environment."""
    command = Command((str(interpreter_in(environment)), "-I", "-B", "-c", code))
    return Programs(os.environ)(command).check("ask the environment").strip()
