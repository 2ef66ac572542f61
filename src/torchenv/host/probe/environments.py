"""The environments that are there already, their Python and torch read from files, never started."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from torchenv.environment.findings import find_wrong
from torchenv.environment.inspect import describe, read_venv_version, torch_version
from torchenv.errors import InputError
from torchenv.host.model import Evidence, Problem, SeenEnvironment, WrittenVersion
from torchenv.host.probe import pythons
from torchenv.host.probe.sources import Look, SeenEvidence, Sources, json_object, json_strings

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
            torch = torch_version(tuple(directories))
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
        problems += _wrong(evidence.text)
        found.append((why, SeenEnvironment(path=path, python=_python(said), torch=parse_torch(said))))
    ranked = [number for number, (why, _) in enumerate(found) if why in _RANK]
    in_use = min(ranked, key=lambda number: _RANK.index(found[number][0]), default=None)
    environments = tuple(
        replace(environment, active=number == in_use, was_found=why == "project")
        for number, (why, environment) in enumerate(found)
    )
    base = next((item.path for why, item in found if why == "conda base"), None)
    if base is not None:
        active = next(environment.path for environment in environments if environment.active)
        rest = "" if active == base else f"; the active environment is {active}"
        message = f"conda's base environment {base} is active in this shell and is not touched{rest}"
        problems.append(Problem("conda-base-active", "CONDA_PREFIX", message))
    return environments, tuple(problems)


def parse_torch(said: Mapping[str, str]) -> WrittenVersion | None:
    """Read the version of torch, with its local label where one is known."""
    # 2.14.1+cu130, or in the evidence of older versions of torchenv:
    # __version__ = '2.14.1+cu130'
    # torch-2.14.1.dist-info
    text = said.get("torch", "")
    found = re.search(r"__version__\s*(?::\s*\w+\s*)?=\s*['\"]([^'\"]+)", text)
    found = found or re.match(r"torch-(.+)\.dist-info", text)
    return WrittenVersion.read(found[1] if found else text)


def _led_to(sources: Sources, project: Path | None) -> Iterator[tuple[str, Path]]:
    variables = sources.variables
    if variables.get("VIRTUAL_ENV"):
        yield "VIRTUAL_ENV", Path(variables["VIRTUAL_ENV"])
    if variables.get("CONDA_PREFIX"):
        is_base = variables.get("CONDA_DEFAULT_ENV") == "base"
        yield "conda base" if is_base else "CONDA_PREFIX", Path(variables["CONDA_PREFIX"])
    if project is not None and os.path.isdir(project / ".venv"):
        yield "project", project / ".venv"
    first = pythons.first_on_path(sources)
    if first is not None and (venv := pythons.venv_of(first)):
        yield "PATH", venv


def _keep(look: Look, why: str, prefix: Path) -> None:
    source = f"{SOURCE}{prefix}"
    said: dict[str, object] = {"why": why}
    try:
        installation = describe(prefix)
        said |= {"python": installation.python, "torch": installation.torch}
        wrong = [[finding.code, finding.path, finding.message] for finding in find_wrong(installation)]
        if wrong:
            said["wrong"] = wrong
    except InputError:
        # conda also makes environments without a Python.
        if not (why in {"CONDA_PREFIX", "conda base"} and os.path.isdir(prefix)):
            look.keep(Evidence(source, "failed", f"{why} points at {prefix}, which is not an environment"))
            return
    except OSError as error:
        look.keep(Evidence(source, "failed", f"{prefix} cannot be read: {error.strerror or error}"))
        return
    look.keep(Evidence(source, "read", json.dumps(said)))


def _wrong(text: str) -> Iterator[Problem]:
    """Read what the files of an environment showed to be wrong."""
    listed = json_object(text).get("wrong")
    for finding in listed if isinstance(listed, list) else ():
        match finding:
            case [str(code), str(path), str(message)]:
                yield Problem(f"environment-{code}", path, f"{path}: {message}")
            case _:
                # The text may come from anywhere.
                continue


def _find_site_packages(prefix: Path, minor: str) -> list[Path]:
    return [
        prefix / f"lib/python{minor}/site-packages",
        prefix / "Lib/site-packages",
        # Debian's own places, for what pip and what apt installs.
        prefix / f"local/lib/python{minor}/dist-packages",
        prefix / "lib/python3/dist-packages",
    ]


def _python(said: Mapping[str, str]) -> WrittenVersion | None:
    if "python" in said:
        return WrittenVersion.read(said["python"])
    # The evidence of older versions of torchenv: python-3.12.4-h194c7f8_1.json
    conda = re.search(r"python-(\d+\.\d+\.\d+)", said.get("conda-meta", ""))
    version = read_venv_version(said.get("pyvenv.cfg", "")) or (conda[1] if conda else None)
    return WrittenVersion.read(version) if version else None
