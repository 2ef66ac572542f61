"""Where the probe looks, and what it saw there: every look leaves one piece of evidence."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from torchenv.host.model import Evidence
from torchenv.system.process import Command, Completed, End, Runner, together
from torchenv.system.values import frozen

# Seconds that a program may take. They run side by side, so this is also about what all take.
LIMIT = 10.0

GUEST = Path(__file__).parents[2] / "guest"


def this_python() -> Mapping[str, str]:
    """Describe what the running Python knows of its system without asking anything outside."""
    said = {"system": platform.system().lower(), "machine": platform.machine().lower()}
    try:
        said["libc"] = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, OSError, ValueError):
        said["libc"] = ""
    return said


@frozen(kw_only=True)
class Sources:
    """What the probe may look at: this machine, a folder that stands for one, or a test's.

    `root` holds `/proc`, `/sys` and their like. Interpreters and environments are looked for where
    `variables` say, and programs on the `PATH`. Without `libraries` NVML and libcuda are not asked.
    """

    run: Runner
    variables: Mapping[str, str]
    root: Path = Path("/")
    libraries: bool = True
    python: Mapping[str, str] = field(default_factory=this_python)

    @classmethod
    def sysroot(cls, run: Runner, variables: Mapping[str, str], root: Path) -> Sources:
        """Read a copy of another machine's `/proc` and `/sys`; its libraries cannot be asked."""
        python = {**this_python(), "system": "linux", "libc": ""}
        return cls(run=run, variables=variables, root=root, libraries=False, python=python)

    def path(self, name: str) -> Path:
        """Return the place of an absolute path of the machine."""
        return self.root / name.lstrip("/")

    def has_program(self, name: str) -> bool:
        """Return whether a program of this name is on the `PATH`."""
        return shutil.which(name, path=self.variables.get("PATH", "")) is not None


class SeenEvidence(Mapping[str, Evidence]):
    """Evidence by its source: all that the second half of the probe, which understands, is given."""

    def __init__(self, evidence: Iterable[Evidence]) -> None:
        self._by_source = {item.source: item for item in evidence}

    def __getitem__(self, source: str) -> Evidence:
        return self._by_source[source]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_source)

    def __len__(self) -> int:
        return len(self._by_source)

    def text(self, source: str) -> str | None:
        """Return what was read there, or None if it was not there or could not be read."""
        evidence = self.get(source)
        return evidence.text if evidence and evidence.outcome == "read" else None

    def read_output(self, source: str) -> str:
        """Return whatever was printed, also by a program that failed; nothing is an empty text."""
        evidence = self.get(source)
        return evidence.text if evidence and evidence.outcome != "absent" else ""

    def has_failed(self, source: str) -> bool:
        """Return whether something is there that did not give its answer."""
        evidence = self.get(source)
        return evidence is not None and evidence.outcome == "failed"

    def variable(self, name: str) -> str | None:
        """Return the value of an environment variable that was set."""
        return self.text(f"${name}")

    def starting(self, prefix: str) -> tuple[Evidence, ...]:
        """Return every piece whose source starts so, in the order in which they were seen."""
        return tuple(part for source, part in self.items() if source.startswith(prefix))


class Look:
    """Looks at each source once and keeps what was seen."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self.silent: set[str] = set()
        """The programs that did not answer in time: asking them again would take as long."""
        self._evidence: dict[str, Evidence] = {}

    @property
    def gathered(self) -> SeenEvidence:
        """What was seen so far."""
        return SeenEvidence(self._evidence.values())

    def keep(self, evidence: Evidence) -> None:
        """Keep a piece of evidence, also one that was put together from several looks."""
        self._evidence[evidence.source] = evidence

    def take(self, source: str) -> str | None:
        """Return what was printed there and keep it no longer: it is kept in parts. None if not asked."""
        evidence = self._evidence.pop(source, None)
        return None if evidence is None else evidence.text

    def at(self, path: str) -> str | None:
        """Read a text file of the machine; None if it is not there or cannot be read."""
        try:
            text = self.sources.path(path).read_bytes().decode("utf-8", "replace").rstrip("\0")
        except (FileNotFoundError, NotADirectoryError):
            self.keep(Evidence(path, "absent"))
        except OSError as error:
            self.keep(Evidence(path, "failed", error.strerror or str(error)))
        else:
            self.keep(Evidence(path, "read", text))
            return text
        return None

    def mark(self, path: str) -> bool:
        """Note whether something is at a path of the machine, without reading it: it may be a device."""
        is_there = os.path.exists(self.sources.path(path))
        self.keep(Evidence(path, "read" if is_there else "absent"))
        return is_there

    def within(self, path: str) -> tuple[str, ...]:
        """List the names in a directory of the machine."""
        try:
            names = tuple(sorted(item.name for item in self.sources.path(path).iterdir()))
        except (FileNotFoundError, NotADirectoryError):
            self.keep(Evidence(path, "absent"))
        except OSError as error:
            self.keep(Evidence(path, "failed", error.strerror or str(error)))
        else:
            self.keep(Evidence(path, "read", "\n".join(names)))
            return names
        return ()

    def variables(self, *names: str) -> None:
        """Keep the environment variables of these names that are set."""
        for name in names:
            if name in self.sources.variables:
                self.keep(Evidence(f"${name}", "read", self.sources.variables[name]))

    def run(self, programs: Mapping[str, Command]) -> None:
        """Run programs side by side; each is kept under the name it is given here."""
        answers = together(self.sources.run, tuple(programs.values()), timeout=LIMIT)
        for source, answer in zip(programs, answers, strict=True):
            self.keep(Evidence(source, *_outcome(answer)))
            if answer.end is End.OUT_OF_TIME:
                self.silent.add(source)


def child(name: str, *arguments: str) -> Command:
    """Ask something in a Python of its own, so that a hang or a crash stays there."""
    return Command((sys.executable, "-I", "-S", str(GUEST / name), *arguments))


def json_object(text: str | None) -> Mapping[str, Any]:
    """Return the JSON object that a text holds; anything else is an empty one."""
    try:
        data = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def json_strings(text: str | None) -> Mapping[str, str]:
    """Return the strings of the JSON object that a text holds, by their names."""
    return {key: value for key, value in json_object(text).items() if isinstance(value, str)}


def _outcome(answer: Completed) -> tuple[str, str]:
    printed = "\n".join(item.rstrip() for item in (answer.out, answer.err) if item.strip())
    match answer.end:
        case End.NOT_FOUND:
            return "absent", ""
        case End.NOT_STARTED:
            return "failed", answer.err
        case End.OUT_OF_TIME:
            return "failed", f"{printed}\ndid not answer within {LIMIT:.0f} s".strip()
        case End.EXITED:
            return ("read" if answer.code == 0 else "failed"), printed
