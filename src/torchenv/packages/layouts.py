"""The layouts in which projects ask for torch already, read as what `torchenv.toml` would say of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from torchenv.catalogue.releases import Catalogue
from torchenv.errors import InputError
from torchenv.packages.documents import read_conda_range, read_pixi_requirements
from torchenv.packages.requirements_file import ReadText, read_requirements_file
from torchenv.system.addresses import mask_logins
from torchenv.system.documents import Table

# The words of other tools for the platforms of a target.
_PLATFORMS = {
    "linux-64": "linux-x86_64",
    "linux-aarch64": "linux-aarch64",
    "osx-arm64": "darwin-arm64",
    "win-64": "windows-x86_64",
}

# What conda's channels call torch, and what of theirs is no package of the package index.
_CONDA_NAMES = {"pytorch": "torch", "pytorch-gpu": "torch", "pytorch-cpu": "torch"}
_CONDA_ALONE = re.compile(
    r"(cuda|cudatoolkit|cudnn|nccl|libtorch|mkl|blas|openblas|c-compiler|cxx-compiler|compilers|gcc|gxx|clang|cmake|make|ninja"
    r"|git|ffmpeg|nodejs|openmpi|libstdcxx|libgcc|sysroot)([-_].*)?|pytorch-mutex"
)

# The Pythons that a target takes, where the project leaves it open: those with wheels of everything first.
_PREFERRED = ("3.12", "3.11", "3.13", "3.14")


@dataclass(slots=True)
class ProposedTarget:
    """A kind of machine that a layout asks for."""

    name: str
    platform: str
    backend: str | None = None
    extras: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Proposal:
    """What a layout says in the words of a profile; `left_out` is what it says beside, a sentence each."""

    name: str = "default"
    torch: str = "latest"
    family: list[str] = field(default_factory=list)
    python: str = _PREFERRED[0]
    requirements: list[str] = field(default_factory=list)
    constraints: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    editable: list[str] = field(default_factory=list)
    torch_index: str | None = None
    packages_index: str | None = None
    private: dict[str, list[str]] = field(default_factory=dict)
    targets: list[ProposedTarget] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def read_layout(name: str, directory: Path, read: ReadText, catalogue: Catalogue) -> Proposal:
    """Read a pyproject.toml, pixi.toml, environment.yml, requirements file or uv.lock of `directory`.

    Raises `InputError` for a file of another kind, or one that is damaged.
    """
    path = directory / name
    proposal = Proposal(name=_slug(directory.name))
    if path.suffix in {".yml", ".yaml"}:
        _read_environment(path, name, read, proposal, catalogue)
    elif path.name == "uv.lock":
        _read_uv_lock(Table.from_toml(read(path), name), proposal, catalogue)
    elif path.name == "pixi.toml":
        table = Table.from_toml(read(path), name)
        head = table.table("workspace" if "workspace" in table else "project")
        proposal.name = _slug(head.get("name", str, directory.name))
        _read_pixi_tables(table, head, proposal, catalogue)
    elif path.suffix == ".toml":
        _read_pyproject(Table.from_toml(read(path), name), name, proposal, catalogue)
    elif path.suffix in {".txt", ".in"}:
        _read_requirements(path, name, read, proposal, catalogue)
    else:
        hint = "name a pyproject.toml, pixi.toml, environment.yml, requirements.txt or uv.lock"
        raise InputError(f"`{name}` is not a supported layout", hint=hint)
    if not proposal.targets:
        _add_target(None, "linux-x86_64", proposal, catalogue)
        proposal.left_out.append(
            f"{name} names no index of torch's: for a machine with GPUs, run"
            " `torchenv probe -o node.json` there, then `torchenv lock --host node.json` here"
        )
    return proposal


def _read_pyproject(table: Table, name: str, proposal: Proposal, catalogue: Catalogue) -> None:
    project, tool = table.table("project"), table.table("tool")
    poetry, uv, pixi = tool.table("poetry"), tool.table("uv"), tool.table("pixi")
    proposal.name = _slug(project.get("name", str, poetry.get("name", str, proposal.name)))
    _take_python(project.maybe("requires-python", str), proposal)
    asked = list(project.strings("dependencies"))
    extras = {
        key: project.table("optional-dependencies").strings(key)
        for key in project.table("optional-dependencies")
    }
    for line in (*asked, *(line for lines in extras.values() for line in lines)):
        _take_family(line, proposal, catalogue)
    if "project" in table and "dependencies" not in pixi:
        # It stays the one place where they are written: what it lists is read again by each lock.
        proposal.files.append(name)
    else:
        proposal.requirements += [line for line in asked if not _is_family(line, catalogue)]
    if "build-system" in table and uv.get("package", bool, default=True) and "project" in table:
        proposal.editable.append(".")
    _read_uv(uv, extras, proposal, catalogue)
    _read_poetry(poetry, proposal, catalogue)
    if "pixi" in tool:
        head = pixi.table("workspace" if "workspace" in pixi else "project")
        _read_pixi_tables(pixi, head, proposal, catalogue)


def _read_uv(uv: Table, extras: Mapping[str, Any], proposal: Proposal, catalogue: Catalogue) -> None:
    addresses: dict[str, str] = {}
    for listed in uv.tables("index"):
        url = listed.get("url", str)
        addresses[listed.get("name", str, url)] = url
        if listed.get("default", bool, default=False):
            proposal.packages_index = _without_login(url, proposal)
    used: set[str] = set()
    for name, value in uv.table("sources").raw().items():
        for source in value if isinstance(value, list) else [value]:
            index = str(source.get("index", "")) if isinstance(source, dict) else ""
            if index not in addresses:
                continue
            used.add(index)
            if canonicalize_name(name) in catalogue.family:
                if canonicalize_name(name) == "torch":
                    _take_torch_index(addresses[index], source, extras, proposal, catalogue)
            elif bare := _without_login(addresses[index], proposal):
                proposal.private.setdefault(bare, []).append(canonicalize_name(name))
    for listed in uv.tables("index"):
        name, url = listed.get("name", str, ""), listed.get("url", str)
        if name not in used and not listed.get("default", bool, default=False):
            if backend := _take_backend(url, proposal, catalogue):
                _add_target(backend, "linux-x86_64", proposal, catalogue)
            else:
                proposal.left_out.append(
                    f"index {name or mask_logins(url)} serves every name: bind names in [[index.private]]"
                )


def _take_torch_index(
    url: str, source: Mapping[str, Any], extras: Mapping[str, Any], proposal: Proposal, catalogue: Catalogue
) -> None:
    tag, extra, marker = (
        _take_backend(url, proposal, catalogue),
        source.get("extra"),
        str(source.get("marker", "")),
    )
    # sys_platform == 'darwin' and platform_system == 'Windows' name a system; `!=` leaves Linux.
    systems = re.findall(r"==\s*['\"](linux|darwin|win32|Linux|Darwin|Windows)['\"]", marker)
    platforms = [
        {"l": "linux-x86_64", "d": "darwin-arm64", "w": "windows-x86_64"}[system[0].lower()]
        for system in systems
    ]
    for platform in dict.fromkeys(platforms) or ["linux-x86_64"]:
        target = _add_target(tag, platform, proposal, catalogue, name=extra)
        more = [line for line in extras.get(extra, ()) if not _is_family(line, catalogue)] if extra else []
        if target is not None and more and extra:
            target.extras.append(extra)


def _read_poetry(poetry: Table, proposal: Proposal, catalogue: Catalogue) -> None:
    urls = {source.get("name", str): source.get("url", str, "") for source in poetry.tables("source")}
    for source in poetry.tables("source"):
        if (tag := _take_backend(source.get("url", str, ""), proposal, catalogue)) is not None:
            _add_target(tag, "linux-x86_64", proposal, catalogue)
    dependencies = poetry.table("dependencies").raw()
    for name, value in dependencies.items():
        details = value if isinstance(value, dict) else {"version": value}
        if isinstance(value, list):
            proposal.left_out.append(f"{name}: several versions by marker: write it under [packages]")
            continue
        if name == "python":
            _take_python(_caret(str(details.get("version", "*"))), proposal)
            continue
        url = urls.get(str(details.get("source", "")), "")
        if url and not _backend_of(url) and (bare := _without_login(url, proposal)):
            proposal.private.setdefault(bare, []).append(canonicalize_name(name))
        if proposal.files:
            # Poetry 2: [project] lists it, and this only says where it comes from.
            continue
        _take_poetry_line(name, details, proposal, catalogue)
    for group in poetry.table("group"):
        proposal.left_out.append(f"group `{group}` of poetry: list what training needs under [packages]")
    if "extras" in poetry:
        names = ", ".join(poetry.table("extras"))
        proposal.left_out.append(f"extras of poetry ({names}): list them under [[target]] packages")


def _take_poetry_line(
    name: str, details: Mapping[str, Any], proposal: Proposal, catalogue: Catalogue
) -> None:
    extras = f"[{','.join(details['extras'])}]" if details.get("extras") else ""
    if details.get("optional"):
        proposal.left_out.append(f"{name}: it is optional, and an extra brings it")
    elif "path" in details:
        proposal.editable.append(str(details["path"]))
    elif "git" in details:
        revision = next((details[key] for key in ("rev", "tag", "branch") if key in details), None)
        proposal.requirements.append(
            f"{name}{extras} @ git+{details['git']}{f'@{revision}' if revision else ''}"
        )
    elif "url" in details:
        proposal.requirements.append(f"{name}{extras} @ {details['url']}")
    else:
        marker = f" ; {details['markers']}" if details.get("markers") else ""
        line = f"{name}{extras}{_caret(str(details.get('version', '*')))}{marker}"
        _take_line(line, proposal, catalogue, name)


def _read_pixi_tables(table: Table, head: Table, proposal: Proposal, catalogue: Catalogue) -> None:
    platforms = [_PLATFORMS[word] for word in head.strings("platforms") if word in _PLATFORMS]
    for name, value in table.table("dependencies").raw().items():
        version = value.get("version", "*") if isinstance(value, dict) else str(value)
        _take_conda(name, version, proposal, catalogue)
    for _, line in read_pixi_requirements(table):
        _take_line(line, proposal, catalogue, line)
    for key in ("feature", "environments"):
        if key in table:
            names = ", ".join(table.table(key))
            proposal.left_out.append(f"{key} of pixi ({names}): write a [[target]] for each that is wanted")
    cuda = table.table("system-requirements").raw().get("cuda")
    backend = next((target.backend for target in proposal.targets), None)
    if cuda is not None and backend is None:
        backend = catalogue.releases[0].defaults.get("nvidia")
    proposal.targets = []
    for platform in platforms or ["linux-x86_64"]:
        _add_target(None if platform.startswith("darwin") else backend, platform, proposal, catalogue)


def _read_environment(
    path: Path, name: str, read: ReadText, proposal: Proposal, catalogue: Catalogue
) -> None:
    import yaml

    try:
        document = yaml.safe_load(read(path))
    except yaml.YAMLError as error:
        raise InputError(f"{name}: not valid YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(document, dict) or not isinstance(document.get("dependencies"), list):
        raise InputError(
            f"{name}: lists no dependencies", hint="name the file that conda makes environments from"
        )
    proposal.name = _slug(str(document.get("name") or proposal.name))
    for entry in document["dependencies"]:
        if isinstance(entry, str):
            # conda-forge::numpy>=2, python=3.12, pytorch=2.5=py3.12_cuda12.4_0
            match = re.fullmatch(r"(?:[\w.-]+::)?([\w.-]+)\s*([<>=!~ ].*)?", entry.strip())
            if match is None:
                proposal.left_out.append(f"`{entry}` is not a package by its name")
                continue
            version = (match[2] or "*").strip()
            _take_conda(match[1], re.sub(r"^=*([^=<>!~]+)=[^=]+$", r"=\1", version), proposal, catalogue)
        elif isinstance(entry, dict) and isinstance(entry.get("pip"), list):
            for line in entry["pip"]:
                _take_pip_line(str(line), name, proposal, catalogue)


def _take_pip_line(line: str, name: str, proposal: Proposal, catalogue: Catalogue) -> None:
    option, _, value = line.partition(" ")
    option, _, joined = option.partition("=")
    value = (joined or value).strip()
    if option in {"-r", "--requirement"}:
        proposal.files.append(value)
    elif option in {"-e", "--editable"}:
        proposal.editable.append(value)
    elif option in {"--index-url", "-i", "--extra-index-url"} and (
        tag := _take_backend(value, proposal, catalogue)
    ):
        _add_target(tag, "linux-x86_64", proposal, catalogue)
    elif line.startswith("-"):
        proposal.left_out.append(f"{name}: `{mask_logins(line)}`")
    else:
        _take_line(line, proposal, catalogue, line)


def _read_requirements(
    path: Path, name: str, read: ReadText, proposal: Proposal, catalogue: Catalogue
) -> None:
    found = read_requirements_file(path, read)
    proposal.files.append(name)
    for asked in found.requirements:
        _take_family(asked.requirement, proposal, catalogue)
    for option in re.findall(
        r"^\s*(?:--extra-index-url|--index-url|-i)[\s=]+(\S+)", read(path), re.MULTILINE
    ):
        if tag := _take_backend(option, proposal, catalogue):
            _add_target(tag, "linux-x86_64", proposal, catalogue)
        else:
            shown = mask_logins(option)
            proposal.left_out.append(f"index {shown}: bind names to it under [[index.private]]")


def _read_uv_lock(table: Table, proposal: Proposal, catalogue: Catalogue) -> None:
    _take_python(table.maybe("requires-python", str), proposal)
    pins: dict[str, str] = {}
    for package in table.tables("package"):
        name, version = package.get("name", str), package.get("version", str, "")
        source = package.table("source").raw()
        if {"virtual", "editable"} & source.keys():
            proposal.name = (
                _slug(name) if source.get("virtual", source.get("editable")) == "." else proposal.name
            )
            asked = (str(needed.get("name", str)) for needed in package.tables("dependencies"))
            proposal.requirements += [line for line in asked if line not in catalogue.family]
            proposal.editable += [str(source["editable"])] if "editable" in source else []
        elif name in catalogue.family:
            public, _, label = version.partition("+")
            if name == "torch":
                proposal.torch = public
                _add_target(label or None, "linux-x86_64", proposal, catalogue)
            else:
                _add_once(proposal.family, name)
        elif "registry" in source and not catalogue.is_brought_along(name):
            pins[name] = version
        elif "git" in source:
            proposal.left_out.append(
                f"{name} comes from {mask_logins(str(source['git']))}: ask for it by that"
            )
    members = {canonicalize_name(line) for line in proposal.requirements} - pins.keys()
    proposal.requirements = sorted({line for line in proposal.requirements if line not in members})
    proposal.constraints = [f"{name}=={version}" for name, version in sorted(pins.items())]


def _take_conda(name: str, version: str, proposal: Proposal, catalogue: Catalogue) -> None:
    bare = read_conda_range(version)
    if name == "python":
        _take_python(bare or None, proposal)
    elif name == "pytorch-cuda":
        tag = "cu" + "".join(re.findall(r"\d+", bare)[:2])
        _add_target(tag, "linux-x86_64", proposal, catalogue)
    elif name == "pip":
        return
    elif _CONDA_ALONE.fullmatch(name):
        proposal.left_out.append(f"{name} of conda's channels is not on the package index")
    else:
        if name == "pytorch-cpu":
            _add_target("cpu", "linux-x86_64", proposal, catalogue)
        known = _CONDA_NAMES.get(name, name)
        _take_line(f"{known}{bare}", proposal, catalogue, name)


def _take_line(line: str, proposal: Proposal, catalogue: Catalogue, shown: str) -> None:
    try:
        Requirement(line)
    except InvalidRequirement:
        proposal.left_out.append(f"`{shown}` is not a requirement: write it under [packages]")
        return
    if _is_family(line, catalogue):
        _take_family(line, proposal, catalogue)
    elif not catalogue.is_brought_along(canonicalize_name(Requirement(line).name)):
        _add_once(proposal.requirements, line)


def _take_family(line: str, proposal: Proposal, catalogue: Catalogue) -> None:
    try:
        requirement = Requirement(line)
    except InvalidRequirement:
        return
    name = canonicalize_name(requirement.name)
    if name == "torch" and requirement.specifier:
        pins = [bound.version for bound in requirement.specifier if bound.operator == "=="]
        line = (
            ".".join(pins[0].removesuffix(".*").split("+")[0].split("."))
            if pins
            else str(requirement.specifier)
        )
        proposal.torch = line if proposal.torch == "latest" else proposal.torch
    elif name in catalogue.family and name != "torch":
        _add_once(proposal.family, name)


def _is_family(line: str, catalogue: Catalogue) -> bool:
    try:
        return canonicalize_name(Requirement(line).name) in catalogue.family
    except InvalidRequirement:
        return False


def _take_python(specifier: str | None, proposal: Proposal) -> None:
    if not specifier:
        return
    try:
        allowed = SpecifierSet(specifier)
    except InvalidSpecifier:
        proposal.left_out.append(f"Python {specifier} is not a known range")
        return
    fitting = (minor for minor in _PREFERRED if allowed.contains(f"{minor}.99", prereleases=True))
    found = next(fitting, None)
    if found is None:
        proposal.left_out.append(f"Python {specifier}: torch has no wheels for it")
    else:
        proposal.python = found


def _add_target(
    tag: str | None, platform: str, proposal: Proposal, catalogue: Catalogue, *, name: object = None
) -> ProposedTarget | None:
    if tag is not None and tag not in catalogue.tags:
        proposal.left_out.append(f"backend {tag}: no release in the catalogue is built for it")
        return None
    if platform == "darwin-arm64":
        tag = None
    system = platform.partition("-")[0]
    usual = tag or {"darwin": "mac", "windows": "windows"}.get(system, "cpu")
    backend = tag if tag or system == "darwin" else "cpu"
    slug = _slug(str(name or usual))
    taken = {target.name: target for target in proposal.targets}
    if slug in taken and taken[slug].platform != platform:
        slug = _slug(f"{slug}-{system}")
    if slug not in {target.name for target in proposal.targets}:
        proposal.targets.append(ProposedTarget(slug, platform, backend))
    return next(target for target in proposal.targets if target.name == slug)


def _take_backend(url: str, proposal: Proposal, catalogue: Catalogue) -> str | None:
    """Return the backend of an address of torch's, and keep the root of a mirror."""
    tag = _backend_of(url)
    if tag is not None and (bare := _without_login(url, proposal)):
        root = bare.removesuffix(f"/{tag}").removesuffix("/test").removesuffix("/nightly")
        proposal.torch_index = root if root != catalogue.index_root else None
    return tag


def _backend_of(url: str) -> str | None:
    """Return the last part of an address of PyTorch's index or of a mirror of it: `cu132`."""
    match = re.search(r"/whl(?:/(?:test|nightly))?/(cu\d+|cpu|rocm[\d.]+|xpu)/?$", urlsplit(url).path)
    return match[1] if match else None


def _without_login(url: str, proposal: Proposal) -> str | None:
    if mask_logins(url) != url:
        proposal.left_out.append(f"index {mask_logins(url)} is written with a login: store it in ~/.netrc")
        return None
    return url.rstrip("/")


def _caret(version: str) -> str:
    """Return a range of poetry's as one of PEP 440: `^2.1` is at least that and below the next major."""
    parts = [part.strip() for part in version.split(",")]
    return ",".join(filter(None, map(_caret_part, parts)))


def _caret_part(part: str) -> str:
    if match := re.fullmatch(r"([\^~])\s*(\d+(?:\.\d+)*)\S*", part):
        numbers = [int(number) for number in match[2].split(".")]
        if match[1] == "~":
            kept = numbers[:2] if len(numbers) > 1 else numbers[:1]
        else:
            first = next((place for place, number in enumerate(numbers) if number), len(numbers) - 1)
            kept = numbers[: first + 1]
        above = [*kept[:-1], kept[-1] + 1]
        return f">={match[2]},<{'.'.join(map(str, above))}"
    if re.match(r"[<>=!]", part):
        return part
    return "" if part in {"*", ""} else f"=={part}"


def _slug(name: str) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60].strip("-")
    return slug or "default"


def _add_once(into: list[str], line: str) -> None:
    if line not in into:
        into.append(line)
