"""A lock: PEP 751 text with hashes, from which the same environment can be built again."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from torchenv.errors import InputError
from torchenv.packages.values import LocalPackage
from torchenv.system.documents import Table, toml
from torchenv.system.values import frozen

if TYPE_CHECKING:
    from packaging.pylock import Package, Pylock


@frozen
class LockedFile:
    """One file that may be installed: its name, where it lay, and its sha256."""

    name: str
    url: str
    sha256: str
    size: int | None = None


@frozen
class LockedPackage:
    """One package at one version; `index` is where it was chosen from, if the lock says so.

    `version` keeps torch's local label: 2.15.0+cu132. A package from version control has no
    version and no files: its commit is its hash.
    """

    name: str
    version: str | None
    index: str | None
    files: tuple[LockedFile, ...]

    def choose_file(self, python: str, platform: str) -> LockedFile | None:
        """Return what an installer takes for a Python such as `3.14t` on a platform: a wheel, if one fits."""
        from packaging.utils import InvalidWheelFilename, parse_wheel_filename

        from torchenv.index.pages import Wheel

        for file in self.files:
            with suppress(InvalidWheelFilename):
                _, version, _, tags = parse_wheel_filename(file.name)
                if Wheel(filename=file.name, version=version, tags=tags).fits(python, platform):
                    return file
        return next((file for file in self.files if not file.name.endswith(".whl")), None)


@dataclass(frozen=True)
class Lock:
    """The text of a lock and what it says; the same lock is always the same bytes."""

    text: str
    packages: tuple[LockedPackage, ...]

    @classmethod
    def parse(cls, text: str, source: str) -> Lock:
        """Read a lock and refuse what cannot be trusted or rebuilt; `source` names its file.

        Raises `InputError` for invalid PEP 751, a file without a sha256, a folder of one machine,
        or an address with a password in it.
        """
        head, packages = _split(text)
        known = _KNOWN.get(packages) if packages else None
        if known is not None:
            # The head alone is new: it says who locked for what.
            _validate({**Table.from_toml(head, source).raw(), "packages": []}, source)
            return cls(text, known)
        found = _packages(_validate(Table.from_toml(text, source).raw(), source), source)
        if packages and len(_KNOWN) < _MOST_KNOWN:
            _KNOWN[packages] = found
        return cls(text, found)

    @cached_property
    def digest(self) -> str:
        """The sha256 of the text, as `sha256:…`: two locks that agree are the same lock."""
        return f"sha256:{hashlib.sha256(self.text.encode()).hexdigest()}"

    @cached_property
    def versions(self) -> Mapping[str, str]:
        """The version of each package, by its normalised name."""
        return {package.name: package.version for package in self.packages if package.version is not None}

    def with_tool(self, name: str, said: Mapping[str, Any]) -> Lock:
        """Return the same lock with something that one tool says in it; other tools pass over it."""
        head, packages = _split(self.text)
        raw = Table.from_toml(head, "the lock").raw()
        written = write_lock({**raw, "tool": {**raw.get("tool", {}), name: said}, "packages": []})
        return Lock(written + packages, self.packages)

    def elsewhere(self, addresses: Mapping[str, str], indexes: Mapping[str, str]) -> Lock:
        """Return the same lock with its files at other addresses, found by their sha256.

        `indexes` goes by package; one without is no longer tied to an index. Hashes stay.
        """
        raw = Table.from_toml(self.text, "the lock").raw()
        packages = [
            {**_move_package(package, addresses), "index": indexes.get(package["name"])}
            for package in raw["packages"]
        ]
        bare = [{key: value for key, value in package.items() if value is not None} for package in packages]
        return Lock.parse(write_lock({**raw, "packages": bare}), "the lock from elsewhere")

    @cached_property
    def local(self) -> tuple[LocalPackage, ...]:
        """The folders of the project that belong to it, which PEP 751 knows no lasting word for.

        Raises `InputError` for one that is not written as torchenv writes it.
        """
        about = Table.from_toml(self.text, "the lock").table("tool").table("torchenv")
        return tuple(_parse_local(line, about) for line in about.strings("local"))

    @cached_property
    def indexes(self) -> tuple[str, ...]:
        """The indexes that its packages were chosen from, each once, in order."""
        return tuple(sorted({package.index for package in self.packages if package.index}))

    @cached_property
    def folders(self) -> tuple[str, ...]:
        """The directories of this machine that its files lie in, each once; a shared lock has none."""
        # 19 ms, which only an installation without a network pays.
        from urllib.request import url2pathname

        local = (
            file.url for package in self.packages for file in package.files if file.url.startswith("file:")
        )
        return tuple(sorted({url2pathname(urlsplit(item).path.rpartition("/")[0]) for item in local}))


# What was read from the packages of a lock: most locks are made anew with the same packages as before.
_KNOWN: dict[str, tuple[LockedPackage, ...]] = {}
_MOST_KNOWN = 64


def _split(text: str) -> tuple[str, str]:
    """Split the text of a lock into what it says of itself, and its packages."""
    head, mark, packages = text.partition("\n[[packages]]")
    return head, mark + packages


def _validate(raw: Mapping[str, Any], source: str) -> Pylock:
    # 54 ms, which commands that only compare digests do not pay.
    from packaging.pylock import Pylock, PylockValidationError

    try:
        return Pylock.from_dict(raw)
    except PylockValidationError as error:
        hint = "make the lock again"
        raise InputError(f"{source}: not a valid lock: {error}", hint=hint) from None


def write_local(folder: LocalPackage) -> str:
    """Return the line by which a lock names a folder: `-e core-lib @ packages/core`."""
    return f"{'-e ' if folder.editable else ''}{folder.name} @ {folder.path}"


def _parse_local(line: str, table: Table) -> LocalPackage:
    match = re.fullmatch(r"(-e )?([a-z0-9][a-z0-9-]*) @ ([^/\s\\-][^\n\\:]*)", line)
    if match is None:
        raise table.wrong("local", f"`{line}` names no folder of the project", "run `torchenv lock`")
    return LocalPackage(name=match[2], path=match[3], editable=match[1] is not None, source=table.source)


def write_lock(raw: Mapping[str, Any], *, index_of: Mapping[str, str | None] | None = None) -> str:
    """Return the text of a decoded lock, with the index of each package written in.

    A lock without `index` makes an installer fetch again what it has in its cache. Keys and
    packages come in a fixed order, so that whoever writes the same lock writes the same bytes.
    """
    head = {key: value for key, value in raw.items() if key != "packages"} | {"created-by": "torchenv"}
    lines = [f"{key} = {toml(head[key])}" for key in sorted(head, key=_rank)]
    for package in sorted(raw["packages"], key=lambda item: (item["name"], str(item))):
        index = (index_of or {}).get(package["name"])
        known = {**package, "index": index} if index and _from_index(package) else package
        lines += ["", "[[packages]]"]
        lines += [
            f"{key} = {_lines(known[key]) if key == 'wheels' else toml(known[key])}"
            for key in sorted(known, key=_rank)
        ]
    return "\n".join(lines) + "\n"


# As PEP 751 presents them.
_HEAD = ("lock-version", "environments", "requires-python", "created-by", "tool")
_PACKAGE = ("name", "version", "marker", "index", "vcs", "archive", "sdist", "wheels")
_ORDER = _HEAD + _PACKAGE


def _rank(key: str) -> tuple[int, str]:
    return (_ORDER.index(key) if key in _ORDER else len(_ORDER), key)


def _move_package(package: Mapping[str, Any], addresses: Mapping[str, str]) -> dict[str, Any]:
    def move_file(file: Mapping[str, Any]) -> dict[str, Any]:
        kept = {key: value for key, value in file.items() if key not in ("url", "path")}
        return {"url": addresses[file["hashes"]["sha256"]], **kept}

    files: dict[str, Any] = {key: move_file(package[key]) for key in ("sdist", "archive") if key in package}
    if "wheels" in package:
        files["wheels"] = [move_file(item) for item in package["wheels"]]
    return {**package, **files}


def _from_index(package: Mapping[str, Any]) -> bool:
    return not {"vcs", "directory", "archive"} & package.keys()


def _lines(wheels: list[Any]) -> str:
    return "[\n" + "".join(f"    {toml(wheel)},\n" for wheel in wheels) + "]"


def _packages(pylock: Pylock, source: str) -> tuple[LockedPackage, ...]:
    return tuple(
        LockedPackage(
            package.name,
            None if package.version is None else str(package.version),
            _without_password(package.index, package.name, source),
            _files(package, source),
        )
        for package in pylock.packages
    )


def _files(package: Package, source: str) -> tuple[LockedFile, ...]:
    if package.directory is not None:
        hint = "leave it out of the lock and install it by hand afterwards"
        raise InputError(f"{source}: {package.name} is a folder of one machine", hint=hint)
    files = []
    for file in (*(package.wheels or ()), package.sdist, package.archive):
        if file is None:
            continue
        url = _without_password(file.url or file.path, package.name, source) or ""
        name = getattr(file, "filename", None) or url.rpartition("/")[2]
        if "sha256" not in file.hashes:
            hint = "lock again: without a hash a replaced file is not noticed"
            raise InputError(f"{source}: {package.name}: {name} has no sha256", hint=hint)
        files.append(LockedFile(name, url, file.hashes["sha256"], file.size))
    return tuple(files)


def _without_password(url: str | None, name: str, source: str) -> str | None:
    # https://<token>@mirror.example/… is one too; ssh://git@… only says who asks.
    parts = urlsplit(url or "")
    if parts.password is not None or (parts.username and parts.scheme in ("http", "https")):
        raise InputError(
            f"{source}: {name}: an address in the lock holds a password",
            hint="store the password in netrc or keyring and lock again: a lock file is shared",
        )
    return url
