"""YAML files: CI workflows, conda environments, compose files, settings of trainers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from torchenv.audit.commands import Command, Lines, Word, commands
from torchenv.audit.findings import TextPlace
from torchenv.audit.installs import (
    IndexReference,
    InstallCommand,
    NamedRequirement,
    index_in,
    parse_match_spec,
    parse_requirement,
)
from torchenv.audit.readers.scripts import flags_of, image_python, installs_of, may_bring_torch, settings_of
from torchenv.audit.sources import FileKind, NamedInterpreter, Scalar, Setting, Source

if TYPE_CHECKING:
    from collections.abc import Iterator

_PYTHON_KEY = re.compile(r"(?i)python|(?:min_|max_)?py(?:thon)?[-_]?ver(?:sion)?s?")
_PYTHON = re.compile(r"(3\.\d+)(?:\.\d+|\.x)?t?")


def read_yaml(path: str, kind: FileKind, text: str) -> Source:
    """Read every document of a YAML file. Raises `ValueError` where it is not YAML."""
    lines = Lines(text)
    scalars: list[Scalar] = []
    told: list[Command] = []
    by_job: dict[tuple[str, ...], list[Command]] = {}
    settings: list[Setting] = []
    installs: list[InstallCommand] = []
    interpreters: list[NamedInterpreter] = []
    for document in _documents(text):
        for keys, node in _walk(document, (), set()):
            if node.id == "mapping":
                settings += _read_named_setting(node)
                continue
            scalar = Scalar(keys, node.value, _place(node))
            scalars.append(scalar)
            settings += _setting(scalar)
            raw, offset = _raw(node, text)
            found = [*commands(_join_expressions(raw), lines, offset)]
            told += found
            if _is_run(keys):
                by_job.setdefault(job_of(keys), []).extend(found)
        if conda := _conda(document):
            install, pythons = conda
            installs.append(install)
            interpreters += pythons
    told = [*_fill_matrices(told, scalars)]
    idle = frozenset[tuple[str, ...]]()
    if kind is FileKind.CI:
        idle = _idle_jobs(by_job)
        interpreters += _ci_pythons([scalar for scalar in scalars if job_of(scalar.keys) not in idle])
    else:
        interpreters += _images(scalars)
    return Source(
        path=path,
        kind=kind,
        text=text,
        installs=(*installs, *installs_of(told), *_find_index_settings(scalars, told)),
        interpreters=tuple(interpreters),
        settings=(*settings, *settings_of(told), *flags_of(told)),
        scalars=tuple(scalar for scalar in scalars if job_of(scalar.keys) not in idle),
    )


def job_of(keys: tuple[str, ...]) -> tuple[str, ...]:
    """Return the keys of the job that a value of a CI file stands in: what runs on one machine."""
    return keys[:2] if keys[:1] == ("jobs",) else keys[:1]


# What a step of a CI file runs; `uses` calls an action, which cannot be read here.
_RUNS = frozenset({"run", "script", "before_script", "after_script", "install", "command", "bash"})


def _is_run(keys: tuple[str, ...]) -> bool:
    return not _RUNS.isdisjoint(keys[2:] if keys[:1] == ("jobs",) else keys[1:])


def _idle_jobs(by_job: dict[tuple[str, ...], list[Command]]) -> frozenset[tuple[str, ...]]:
    """Return the jobs that run something, and nothing that torch comes in with: linters, other languages."""
    return frozenset(job for job, told in by_job.items() if not may_bring_torch(told))


_MATRIX = re.compile(r"\$\{\{_*matrix\.([\w-]+?)_*\}\}")


def _join_expressions(raw: str) -> str:
    # ${{ matrix.cuda }} is one word; offsets stay.
    return re.sub(r"\$\{\{[^}\n]*\}\}", lambda match: match[0].replace(" ", "_"), raw)


def _fill_matrices(told: list[Command], scalars: list[Scalar]) -> Iterator[Command]:
    """Yield the commands, those that name a value of the job's matrix once for each value."""
    values: dict[str, list[str]] = {}
    for scalar in scalars:
        if "matrix" in scalar.keys[:-1]:
            values.setdefault(scalar.keys[-1], []).append(scalar.text)
    for command in told:
        name = next((match[1] for word in command if (match := _MATRIX.search(word.text))), None)
        if name is None or name not in values:
            yield command
            continue
        for value in dict.fromkeys(values[name]):
            yield tuple(
                Word(word.text.replace(match[0], value), word.place)
                if (match := _MATRIX.search(word.text)) and match[1] == name
                else word
                for word in command
            )


def _documents(text: str) -> list[Any]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return list(yaml.compose_all(text, Loader=loader))
    except yaml.YAMLError as error:
        raise ValueError(f"not YAML: {str(error).splitlines()[0]}") from None


def _walk(node: Any, keys: tuple[str, ...], seen: set[int]) -> Iterator[Any]:
    # A node that is used again by its anchor stands in one place of the file.
    if id(node) in seen:
        return
    seen.add(id(node))
    if node.id == "mapping":
        yield keys, node
        for key, value in node.value:
            yield from _walk(value, (*keys, str(key.value)), seen)
    elif node.id == "sequence":
        for item in node.value:
            yield from _walk(item, keys, seen)
    else:
        yield keys, node


def _place(node: Any) -> TextPlace:
    return TextPlace(node.start_mark.line + 1, node.start_mark.column + 1)


def _raw(node: Any, text: str) -> tuple[str, int]:
    """Return a scalar as it is written and where: a block keeps its lines, quotes are left off."""
    start, end = node.start_mark.index, node.end_mark.index
    if node.style in {"|", ">"}:
        newline = text.find("\n", start)
        block = text[newline:end]
        # The lines of a folded block are one.
        return (block.replace("\n", " ") if node.style == ">" else block), newline
    if node.style in {"'", '"'}:
        return text[start + 1 : end - 1], start + 1
    return text[start:end], start


def _setting(scalar: Scalar) -> Iterator[Setting]:
    if len(scalar.keys) >= 2 and scalar.keys[-2] in {"env", "environment", "variables", "envs"}:
        value = None if "$" in scalar.text else scalar.text
        yield Setting(scalar.keys[-1], value, scalar.place)


def _read_named_setting(node: Any) -> Iterator[Setting]:
    # - name: TORCH_DIST_USE_NCCL2
    #   value: "0"
    pairs = {key.value: value for key, value in node.value if value.id == "scalar"}
    if set(pairs) == {"name", "value"}:
        yield Setting(pairs["name"].value, pairs["value"].value, _place(pairs["name"]))


def _ci_pythons(scalars: list[Scalar]) -> Iterator[NamedInterpreter]:
    for scalar in scalars:
        match = _PYTHON.fullmatch(scalar.text)
        if match and scalar.keys and _PYTHON_KEY.fullmatch(scalar.keys[-1]):
            yield NamedInterpreter(match[1], scalar.place)
    yield from _images(scalars)


def _images(scalars: list[Scalar]) -> Iterator[NamedInterpreter]:
    for scalar in scalars:
        found = image_python(scalar.text, scalar.place)
        if found and not {"image", "container"}.isdisjoint(scalar.keys[-2:]):
            yield found


def _find_index_settings(scalars: list[Scalar], told: list[Command]) -> Iterator[InstallCommand]:
    # env:
    #   PIP_EXTRA_INDEX_URL: https://download.pytorch.org/whl/cu126
    found: list[IndexReference] = []
    for scalar in scalars:
        is_url = scalar.text.startswith("http") and scalar.keys
        if is_url and (
            index := index_in(scalar.text, scalar.place, extra="EXTRA" in scalar.keys[-1].upper())
        ):
            found.append(index)
    if found:
        wanted = tuple(requirement for install in installs_of(told) for requirement in install.asked)
        yield InstallCommand(wanted, tuple(found))


def _conda(document: Any) -> tuple[InstallCommand, list[NamedInterpreter]] | None:
    if document.id != "mapping":
        return None
    table = {key.value: value for key, value in document.value}
    listed = table.get("dependencies")
    if listed is None or listed.id != "sequence" or not {"channels", "name"} & set(table):
        return None
    wanted: list[NamedRequirement] = []
    indexes: list[IndexReference] = []
    pythons: list[NamedInterpreter] = []
    for node in listed.value:
        if node.id == "scalar" and (parsed := parse_match_spec(node.value, _place(node))):
            if parsed.name == "python":
                pythons.append(NamedInterpreter(parsed.specifier, parsed.place))
            else:
                wanted.append(parsed)
        elif node.id == "mapping":
            for _, line in _walk(node, (), set()):
                if line.id == "scalar":
                    _pip_line(line, wanted, indexes)
    return InstallCommand(tuple(wanted), tuple(indexes)), pythons


def _pip_line(node: Any, wanted: list[NamedRequirement], indexes: list[IndexReference]) -> None:
    place = _place(node)
    if node.value.startswith("-"):
        if index := index_in(node.value, place, extra=not re.match(r"-i|--index", node.value)):
            indexes.append(index)
    elif parsed := parse_requirement(node.value, place):
        wanted.append(parsed)
