"""The environments that are there already, their Python and torch read from files, never started."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from torchenv.host.model import Evidence, Problem, SeenEnvironment, WrittenVersion
from torchenv.host.probe import pythons
from torchenv.host.probe.sources import Look, SeenEvidence, Sources, json_strings

SOURCE = "environment "

_VARIABLES = ("VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV")

# Which one is in use. Conda's base is active in every shell of many people, who work in their
# project's own environment all the same.
_RANK = ("VIRTUAL_ENV", "CONDA_PREFIX", "project", "conda base", "PATH")


def look(look: Look, project: Path | None) -> None:
    """Read the environments that variables, the project and the PATH lead to."""
    look.variables(*_VARIABLES)
    seen: set[str] = set()
    for why, prefix in _led_to(look.sources, project):
        real = os.path.realpath(prefix)
        if real not in seen:
            seen.add(real)
            _keep(look, why, prefix)


def look_again(look: Look) -> None:
    """Read what torch the interpreters that answered have of themselves, or from the user's site."""
    first = pythons.first_on_path(look.sources)
    home = look.sources.variables.get("HOME")
    for answer in pythons.answers(look.gathered):
        interpreter, prefix = answer.interpreter, Path(answer.prefix)
        on_path = first is not None and os.path.realpath(first) == os.path.realpath(interpreter.path)
        sites = [(prefix, _find_site_packages(prefix, interpreter.minor))]
        if home:
            # The user's own site comes first when that interpreter imports.
            local = Path(home, ".local")
            sites.insert(0, (local, [local / f"lib/python{interpreter.minor}/site-packages"]))
        for place, directories in sites:
            source = f"{SOURCE}{place}"
            torch = _torch(directories)
            if torch is not None and source not in look.gathered:
                said = {"why": "PATH" if on_path else "interpreter", "torch": torch}
                look.keep(Evidence(source, "read", json.dumps({**said, "python": str(interpreter.version)})))


def understand(seen: SeenEvidence) -> tuple[tuple[SeenEnvironment, ...], tuple[Problem, ...]]:
    """Return every environment, the one in use marked, and what to tell about them."""
    problems = []
    found: list[tuple[str, SeenEnvironment]] = []
    for evidence in seen.starting(SOURCE):
        path = evidence.source.removeprefix(SOURCE)
        said = json_strings(evidence.text)
        why = said.get("why", "")
        if evidence.outcome != "read":
            problems.append(Problem("environment-missing", path, evidence.text))
            continue
        if "made at" in said:
            message = (
                f"{path} was made at {said['made at']} and moved: its Python works, and its scripts name the"
                " old place"
            )
            problems.append(Problem("environment-moved", path, message))
        found.append((why, SeenEnvironment(path=path, python=_python(said), torch=parse_torch(said))))
    ranked = [number for number, (why, _) in enumerate(found) if why in _RANK]
    in_use = min(ranked, key=lambda number: _RANK.index(found[number][0]), default=None)
    environments = tuple(replace(each, active=number == in_use) for number, (_, each) in enumerate(found))
    base = next((each.path for why, each in found if why == "conda base"), None)
    if base is not None:
        active = next(each.path for each in environments if each.active)
        rest = "" if active == base else f"; the environment in use is {active}"
        message = f"conda's base environment {base} is active in this shell and is not touched{rest}"
        problems.append(Problem("conda-base-active", "CONDA_PREFIX", message))
    return environments, tuple(problems)


def parse_cfg(text: str) -> WrittenVersion | None:
    # version = 3.12.3                 (venv)
    # version_info = 3.12.3.final.0    (virtualenv)
    found = re.search(r"^version(?:_info)?\s*=\s*(\d+\.\d+\.\d+)", text, re.MULTILINE)
    return WrittenVersion.read(found[1]) if found else None


def parse_torch(said: Mapping[str, str]) -> WrittenVersion | None:
    """Read what `torch/version.py` says, with the local label, or what the dist-info is called."""
    # __version__ = '2.14.1+cu130'
    # torch-2.14.1.dist-info
    text = said.get("torch", "")
    found = re.search(r"__version__\s*(?::\s*\w+\s*)?=\s*['\"]([^'\"]+)", text)
    found = found or re.match(r"torch-(.+)\.dist-info", text)
    return WrittenVersion.read(found[1]) if found else None


def _led_to(sources: Sources, project: Path | None) -> Iterator[tuple[str, Path]]:
    variables = sources.variables
    if variables.get("VIRTUAL_ENV"):
        yield "VIRTUAL_ENV", Path(variables["VIRTUAL_ENV"])
    if variables.get("CONDA_PREFIX"):
        is_base = variables.get("CONDA_DEFAULT_ENV") == "base"
        yield "conda base" if is_base else "CONDA_PREFIX", Path(variables["CONDA_PREFIX"])
    if project is not None and (project / ".venv").is_dir():
        yield "project", project / ".venv"
    first = pythons.first_on_path(sources)
    if first is not None and (venv := pythons.venv_of(first)):
        yield "PATH", venv


def _keep(look: Look, why: str, prefix: Path) -> None:
    source = f"{SOURCE}{prefix}"
    cfg = _text(prefix / "pyvenv.cfg")
    conda = sorted(each.name for each in prefix.glob("conda-meta/python-3*.json"))
    # conda also makes environments without a Python.
    is_conda = why in {"CONDA_PREFIX", "conda base"} and prefix.is_dir()
    if cfg is None and not conda and not is_conda:
        message = f"{why} leads to {prefix}, which is no environment"
        look.keep(Evidence(source, "failed", message))
        return
    torch = _torch(_within(prefix))
    home = re.search(r"^home\s*=\s*(\S.*?)\s*$", cfg or "", re.MULTILINE)
    version = parse_cfg(cfg or "")
    if torch is None and home and version and re.search(r"system-site-packages\s*=\s*true", cfg or ""):
        torch = _torch(_find_site_packages(Path(home[1]).parent, f"{version.major}.{version.minor}"))
    said = {"why": why, "pyvenv.cfg": cfg, "conda-meta": "\n".join(conda), "torch": torch}
    # command = /usr/bin/python3.12 -m venv --without-pip /home/u/old/.venv
    made = re.search(r"^command\s*=.* -m venv (?:.*? )?(/.*?)\s*$", cfg or "", re.MULTILINE)
    if made and os.path.realpath(made[1]) != os.path.realpath(prefix):
        said["made at"] = made[1]
    look.keep(Evidence(source, "read", json.dumps(said)))


def _within(prefix: Path) -> list[Path]:
    return [*prefix.glob("lib*/python3*/site-packages"), prefix / "Lib/site-packages"]


def _find_site_packages(prefix: Path, minor: str) -> list[Path]:
    return [
        prefix / f"lib/python{minor}/site-packages",
        prefix / "Lib/site-packages",
        # Debian's own places, for what pip and what apt installs.
        prefix / f"local/lib/python{minor}/dist-packages",
        prefix / "lib/python3/dist-packages",
    ]


def _torch(directories: Sequence[Path]) -> str | None:
    """Return the text that names torch's version: empty if torch is there without it, None if not."""
    for directory in directories:
        text = _text(directory / "torch" / "version.py")
        if text is not None:
            line = re.search(r"^__version__.*$", text, re.MULTILINE)
            if line:
                return line[0]
        if info := _dist_info(directory):
            return info
        if (directory / "torch" / "__init__.py").is_file():
            return ""
    return None


def _dist_info(directory: Path) -> str | None:
    names: Iterable[str] = (each.name for each in directory.glob("torch-*.dist-info"))
    return next(iter(sorted(names)), None)


def _python(said: Mapping[str, str]) -> WrittenVersion | None:
    if "python" in said:
        return WrittenVersion.read(said["python"])
    # python-3.12.4-h194c7f8_1.json
    conda = re.search(r"python-(\d+\.\d+\.\d+)", said.get("conda-meta", ""))
    return parse_cfg(said.get("pyvenv.cfg", "")) or (WrittenVersion.read(conda[1]) if conda else None)


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
