"""What other tools read in place of a lock: a requirements file with hashes, and tables for uv's projects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torchenv.errors import InputError
from torchenv.lockfile.lock import Lock, LockedPackage
from torchenv.lockfile.lockset import LockedTarget
from torchenv.system.documents import toml, toml_key


def export_requirements(target: LockedTarget, lock: Lock) -> str:
    """Return a requirements file that pip and uv install with `--require-hashes --no-deps`.

    Every line names its file: two indexes in one command would let either serve what is the other's.
    Raises `InputError` for a package without a file, such as one from version control.
    """
    head = [
        f"# {target.name}: torch {target.torch} for {target.platform}, Python {target.python}.",
        f"# Made from {target.file} by `torchenv export --requirements {target.name}`; install it with",
        "#   pip install --no-deps --require-hashes -r FILE",
    ]
    head += [f"# Left out, as it is a folder of the project: {folder.name}" for folder in lock.local]
    lines = [_requirement(package, target) for package in lock.packages]
    return "\n".join([*head, *lines]) + "\n"


def export_uv(locks: Mapping[LockedTarget, Lock], family: frozenset[str]) -> str:
    """Return the tables with which a project of uv takes torch from where the locks do, an extra a target."""
    return "\n".join(_uv_lines(locks, family)) + "\n"


def _requirement(package: LockedPackage, target: LockedTarget) -> str:
    file = package.choose_file(target.python, target.platform)
    if file is None:
        raise InputError(
            f"{package.name} comes from a repository and has no file to download",
            hint="lock a released version of it",
        )
    return f"{package.name} @ {file.url} --hash=sha256:{file.sha256}"


def _uv_lines(locks: Mapping[LockedTarget, Lock], family: frozenset[str]) -> Iterator[str]:
    yield "# Made by `torchenv export --uv`: for pyproject.toml; `uv sync --extra TARGET` takes one of them."
    yield "[project.optional-dependencies]"
    sources: dict[str, list[dict[str, str]]] = {}
    indexes: dict[str, str] = {}
    for target, lock in locks.items():
        of_family = [package for package in lock.packages if package.name in family]
        yield f"{toml_key(target.name)} = ["
        yield from (f"    {toml(f'{package.name}=={package.version}')}," for package in of_family)
        yield "]"
        for package in of_family:
            if package.index is not None and target.index == "torch" and target.backend:
                name = f"torch-{target.backend.replace('.', '-')}"
                indexes[name] = package.index
                sources.setdefault(package.name, []).append({"index": name, "extra": target.name})
    if len(locks) > 1:
        yield from ("", "[tool.uv]", "conflicts = [", "    [")
        yield from (f"        {toml({'extra': target.name})}," for target in locks)
        yield from ("    ],", "]")
    if sources:
        yield from ("", "[tool.uv.sources]")
    for package_name, choices in sorted(sources.items()):
        yield f"{toml_key(package_name)} = ["
        yield from (f"    {toml(choice)}," for choice in choices)
        yield "]"
    for name, url in sorted(indexes.items()):
        yield from ("", "[[tool.uv.index]]", f"name = {toml(name)}", f"url = {toml(url)}", "explicit = true")
