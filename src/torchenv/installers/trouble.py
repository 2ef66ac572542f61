"""What an installer printed when it failed, turned into the user's words with the remedy."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from urllib.parse import unquote

from torchenv.errors import IndexFailed, PackagesConflict, ToolFailed, TorchenvError, Unobtainable
from torchenv.index.http import NotLetIn, ProxyFailed, Untrusted
from torchenv.installers import LockRequest, name_of
from torchenv.system.addresses import host_of, mask_logins
from torchenv.system.process import Completed, End


def explain_failure(
    done: Completed, purpose: str, request: LockRequest | None = None, *, indexes: Sequence[str] = ()
) -> TorchenvError:
    """Explain why `purpose` failed; where the cause is not known, give what the tool said.

    `indexes` are those whose pages it read.
    """
    said = _one_line(done.err or done.out)
    asked = (*indexes, *(request.homes.values() if request else ()))
    return (
        _no_space(said, purpose)
        or _no_cache(said)
        or _not_in_cache(said)
        or _other_file(said)
        or _not_let_in(said)
        or _distrust(said)
        or _find_gone(said, asked)
        or _find_damaged(said)
        or _unreachable(said, asked)
        or _find_unbuilt(said, purpose)
        or (_lacking(said, request) if request else None)
        or _anything_else(done, said, purpose, request)
    )


def conflict(said: str, request: LockRequest, others: str = "") -> PackagesConflict | None:
    """Name both sides where a package wants another torch than the plan; None if none does.

    `others` is what would be chosen if torch were free, one `name==version` a line.
    """
    # Because all versions of xformers depend on torch==2.14.1 and you require xformers, …
    # Because lightning==2.5.0 depends on torch>=2.1,<2.15 and …
    planned = {name_of(requirement): requirement for requirement in request.requirements}
    for who, version, name, wanted in re.findall(
        r"([\w.\-]+)([=<>!~][^ ]*)? depends? on ([a-z0-9\-]+)([=<>!~]\S*[^\s,])", _one_line(said)
    ):
        if name in planned and not _allows(wanted, planned[name]):
            free = re.search(rf"^{re.escape(who)}==\S+", others, re.MULTILINE)
            return PackagesConflict(
                f"{free[0] if free else who + version} wants {name}{wanted},"
                f" and the plan has {planned[name]}",
                hint=f"leave {who} out, or plan a release that it takes: {name}{wanted}",
                packages=_normalise(who, name),
            )
    return None


def _allows(wanted: str, planned: str) -> bool:
    from packaging.requirements import Requirement
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        allowed = SpecifierSet(wanted)
    except InvalidSpecifier:
        return True
    return all(allowed.contains(pin.version, prereleases=True) for pin in Requirement(planned).specifier)


def _one_line(said: str) -> str:
    return mask_logins(re.sub(r"\s+", " ", said).strip())


def _no_space(said: str, purpose: str) -> ToolFailed | None:
    # Windows says it with error 112, others with 28.
    if not re.search(r"No space left on device|not enough space on the disk|os error 112", said):
        return None
    # failed to write to file `/home/u/.cache/uv/…`: No space left on device (os error 28)
    place = re.search(r"`(/[^`]+|[A-Za-z]:[^`]+)`[^`]*(?:No space left|not enough space)", said)
    where = f"the disk of `{place[1]}`" if place else "the disk"
    hint = "free some space, or set UV_CACHE_DIR and the workspace (`--root`) to a disk that has more"
    return ToolFailed(f"could not {purpose}: no space left on {where}", hint=hint)


def _no_cache(said: str) -> ToolFailed | None:
    # Failed to initialize cache at `/home/u/uv` cause: failed to create `…`: Not a directory (os error 20)
    found = re.search(r"Failed to initialize cache at `([^`]+)`.*?([^:`]+?)(?: \(os error \d+\))?$", said)
    if found is None:
        return None
    hint = "set UV_CACHE_DIR to a directory that can be written, on a disk with room"
    return ToolFailed(f"the cache {found[1]} cannot be made: {found[2].strip()}", hint=hint)


def _not_in_cache(said: str) -> ToolFailed | None:
    # Because torch was not found in the cache and plan depends on torch==2.15.0+cu132, … network was disabled
    # Failed to download `torch==2.15.0` cause: Network connectivity is disabled, but …
    if not re.search(r"network was disabled|Network connectivity is disabled", said):
        return None
    found = re.search(r"`([^`]+==[^`]+)` cause: Network|Because ([\w.\-]+) was not found in the cache", said)
    what = (found[1] or found[2]) if found else "all that is needed"
    hint = "run it once without --offline, or bring UV_CACHE_DIR of a machine that has it"
    return ToolFailed(f"--offline: the cache does not hold {what}", hint=hint)


def _other_file(said: str) -> ToolFailed | None:
    # Hash mismatch for `torch==2.15.0+cu132` Expected: sha256:02ad… Computed: sha256:12ad…
    # Size mismatch for `torch==2.15.0+cu132`: expected 999 bytes, but downloaded 1000 bytes
    # pip: torch==2.15.0+cu132 from https://… (from -r …): Expected sha256 02ad… Got 12ad…
    patterns = (
        r"Hash mismatch for `(\S+?)` Expected: sha256:(\w+).*? Computed: sha256:(\w+)",
        r"Size mismatch for `(\S+?)`: expected (\d+ bytes), but downloaded (\d+ bytes)",
        r"([\w.\-]+==\S+) from \S+ .*?: Expected sha256 (\w+) Got (\w+)",
    )
    found = next(filter(None, (re.search(pattern, said) for pattern in patterns)), None)
    if found is None:
        return None
    what, expected, got = found.groups()
    kind = "" if expected.endswith("bytes") else "sha256 "
    return ToolFailed(
        f"{what} is not the file that was locked: expected {kind}{expected}, got {got}",
        hint="find out whether it was damaged on its way or replaced on the index",
    )


def _not_let_in(said: str) -> IndexFailed | None:
    # Failed to fetch: `https://…` cause: HTTP status client error (401 Unauthorized) for url (https://…)
    # hint: An index URL (https://…) could not be queried due to a lack of valid authentication
    # credentials (401 Unauthorized)
    found = re.search(r"Failed to fetch: `?(http[^` ]+)`?.*?\(40[17] ", said) or re.search(
        r"An index URL \((http[^)]+)\) could not be queried due to a lack of valid authentication", said
    )
    if found is None:
        # pip: ERROR: HTTP error 401 while getting https://…
        found = re.search(r"HTTP error 401 while getting (http\S+)", said)
    if found is None:
        return None
    if "(407 " in said:
        return ProxyFailed.of(unquote(found[1]), "it asks for a login (407)", None)
    return NotLetIn.of(unquote(found[1]), host_of(found[1]), None)


def _distrust(said: str) -> IndexFailed | None:
    # cause: invalid peer certificate: UnknownIssuer; cause: invalid peer certificate: certificate expired: …
    found = re.search(r"invalid peer certificate: (.*)|(certificate verify failed: .*)", said)
    if found is None:
        return None
    address = re.search(r"https://[^`'\s)]+", said)
    words = (found[1] or found[2]).replace("NotValidForName", "Hostname mismatch")
    return Untrusted.of(address[0] if address else "the index", words.replace("Expired", "expired"))


def _find_gone(said: str, asked: Sequence[str]) -> IndexFailed | None:
    # Failed to download `x==1` cause: Failed to fetch: https://… cause: HTTP status client error (404 …)
    found = re.search(r"`([^`]+==[^`]+)` .*?Failed to fetch: `?(http[^` ]+)`?.*? \((40[34]|410) ", said)
    if found is None:
        return None
    what, url, status = found.groups()
    return IndexFailed(
        f"{what} can no longer be fetched: {unquote(url)} answered {status}{_elsewhere(url, asked)}",
        hint="look for it in a cache or on a mirror, or lock again without it",
    )


def _find_damaged(said: str) -> IndexFailed | None:
    # Failed to download `x==1` cause: Failed to extract archive: x.whl cause: unexpected end of file
    # cause: … error reading a body from connection: end of file before message length reached
    if not re.search(
        r"unexpected end of file|end of file before message length|end of central directory|invalid zip|"
        r"IncompleteRead|connection closed before message completed|File is not a zip file|bad CRC",
        said,
        re.IGNORECASE,
    ):
        return None
    found = re.search(r"(?:download|extract archive|fetch)[^`]*`?([\w.\-]+(?:==[^` ]+|\S*\.whl))`?", said)
    return IndexFailed(
        f"{found[1] if found else 'a file'} arrived incomplete or damaged",
        hint="run again; if it fails again, the index or a proxy has a damaged file",
    )


def _unreachable(said: str, asked: Sequence[str]) -> IndexFailed | None:
    found = re.search(r"Failed to fetch: `?(http[^` ]+)`?(.*)", said)
    if found is None:
        return None
    url, causes = found.groups()
    status = re.search(r"\((\d\d\d [^)]+)\)", causes)
    elsewhere = _elsewhere(url, asked)
    if status is not None:
        return IndexFailed(f"{unquote(url)} answered {status[1]}{elsewhere}", hint="try again later")
    if re.search(r"tunnel|proxy|socks", causes, re.IGNORECASE):
        return ProxyFailed.of(unquote(url), causes.rpartition("cause: ")[2].strip(), None)
    why = causes.rpartition("cause: ")[2].strip()
    return IndexFailed(
        f"cannot reach {unquote(url)}: {why or 'no answer'}{elsewhere}",
        hint="check the network and the proxy, or name a mirror with"
        " TORCHENV_TORCH_INDEX and TORCHENV_PACKAGE_INDEX",
        silent=unquote(url),
    )


def _elsewhere(url: str, asked: Sequence[str]) -> str:
    """Describe that an address is on none of the hosts that were asked: their pages link to it."""
    hosts = {host_of(index) for index in asked}
    if not hosts or host_of(url) in hosts or not url.endswith((".whl", ".metadata", ".gz", ".zip")):
        return ""
    return f"; the pages of {', '.join(sorted(hosts))} link to this other host"


def _find_unbuilt(said: str, purpose: str) -> Unobtainable | None:
    # error: Failed to build `flash-attn==2.8.3` cause: The build backend returned an error cause: …
    # ModuleNotFoundError: No module named 'torch' hint: This error likely indicates that …
    found = re.search(r"Failed to (?:download and )?build `([^`]+)`", said)
    if found is None:
        return None
    cause = re.search(r"\b(\w*(?:Error|Exception): .+?)(?: hint: |$)", said[found.end() :])
    why = f": {cause[1]}" if cause else ""
    return Unobtainable(
        f"could not {purpose}: {found[1]} has no wheel that fits and cannot be built{why}",
        hint="leave it out, or take a version that has one",
        packages=_normalise(found[1].partition("==")[0]),
    )


def _lacking(said: str, request: LockRequest) -> Unobtainable | None:
    # Because torch was not found in the package registry and plan depends on torch==2.15.0+cu199, …
    # Because there is no version of torch==2.15.0+cu199 and …
    # Because only numpy<=2.3.0 is available and plan depends on numpy>=3, …
    # Because torch==2.15.0+cu132 has no wheels with a matching Python ABI tag (e.g., `cp315`) and …
    unfit = re.search(r"Because ([\w.\-]+)(\S*) has no wheels with a matching (?:Python|platform)", said)
    if unfit is not None:
        python = f"Python {request.python}{'t' if request.free_threaded else ''}"
        return Unobtainable(
            f"{_index(unfit[1], request)} has no wheel of {unfit[1]}{unfit[2]}"
            f" for {python} on {request.platform}",
            hint="choose another Python or another release",
            packages=_normalise(unfit[1]),
        )
    found = (
        re.search(r"Because (?P<name>[\w.\-]+) was not found", said)
        or re.search(r"no versions? of (?P<name>[\w.\-]+?)(?P<version>[=<>!~]\S*|\b)", said)
        # What there is and what is wanted must be of one name: else it is another package that is lacking.
        or re.search(
            r"only (?:the following versions of )?(?P<name>[\w.\-]+?)(?:[=<>{]\S*)? (?:is|are) available"
            r"(?:[:,].*?)? and (?:[\w.\-=+ ]+? depends? on|you require) (?P=name)(?P<version>[=<>!~]\S*)",
            said,
        )
    )
    if found is None:
        return None
    name = found["name"]
    who, what = _find_who_asks(name, said)
    what = what or f"{name}{found.groupdict().get('version') or ''}".rstrip(",")
    hint = "look at what the index lists, or choose another version or backend"
    asks = f", which {who} asks for" if who else ""
    index = _index(name, request)
    page = f"{index.rstrip('/')}/{name}/" if "://" in index else None
    named = _normalise(name, *([who] if who else []))
    return Unobtainable(f"{index} has no {what}{asks}", hint=hint, page=page, packages=named)


def _find_who_asks(name: str, said: str) -> tuple[str | None, str | None]:
    """Return the package that asks for a name, None where it is the plan itself, and what it asks for."""
    for who, wanted in _wants(said).get(name, {}).items():
        return (None if who == _PLAN else who), f"{name}{wanted}"
    return None, None


# The name of the project that uv resolves; in its words, what the user asks for.
_PLAN = "plan"


def _wants(said: str) -> dict[str, dict[str, str]]:
    """Collect what is wanted of each package, and by whom."""
    # all versions of bb depend on numpy>=2.3 and aa==1 depends on numpy<2.3, we can conclude
    found: dict[str, dict[str, str]] = {}
    asks = r"([\w.\-]+)(?:[=<>!~]\S*)? depends? on ([\w.\-]+)(?:\[[^\]]*\])?((?:[=<>!~]=?[^\s,]+,?)*)"
    for who, name, wanted in re.findall(asks, said):
        found.setdefault(name, {}).setdefault(who, wanted.rstrip(","))
    for name, wanted in re.findall(r"you require ([\w.\-]+)((?:[=<>!~]=?[^\s,]+,?)*)", said):
        found.setdefault(name, {}).setdefault(_PLAN, wanted.rstrip(","))
    return found


def _list_names(said: str) -> frozenset[str]:
    """List every word of a resolver's reason that may be the name of a package."""
    # An address may hold one too: https://mirror.example/simple has no numpy==2.2.0
    return _normalise(*re.findall(r"(?<![\w.-])[A-Za-z0-9][\w.-]*", re.sub(r"\w+://\S+", "", said)))


def _normalise(*names: str) -> frozenset[str]:
    from packaging.utils import canonicalize_name

    return frozenset(canonicalize_name(name.rstrip(".-_")) for name in names)


def _go_together(wanted: Collection[str]) -> bool:
    """Return whether a version that one of them names exactly suits the others too."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        every = SpecifierSet(",".join(wanted))
    except InvalidSpecifier:
        return False
    pins = [one.version for one in every if one.operator == "==" and "*" not in one.version]
    return any(every.contains(pin, prereleases=True) for pin in pins)


def _clash(said: str, request: LockRequest | None) -> str | None:
    """Name who wants what of the one package on which they do not agree."""
    for name, wants in _wants(said).items():
        asked = {who: wanted for who, wanted in wants.items() if wanted}
        if len(asked) < 2 or _go_together(asked.values()):
            continue
        named = [
            f"{'the plan' if who == _PLAN else who} wants {'Python' if name == 'Python' else name}{wanted}"
            for who, wanted in sorted(asked.items())
        ]
        return " and ".join(named)
    python = re.search(r"([\w.\-]+)(?:==(\S+))? depends on Python((?:[=<>!~]=?[^\s,]+,?)+)", said)
    if python is not None and request is not None:
        return f"{python[1]} needs Python {python[3].rstrip(',')}, and the plan has Python {request.python}"
    return None


def _index(name: str, request: LockRequest) -> str:
    family = {*request.family, *map(name_of, request.requirements)}
    home = request.home_of(name)
    index = request.homes[home] if home else (request.torch_index if name in family else None)
    return index or request.package_index or "the default package index"


def _anything_else(done: Completed, said: str, purpose: str, request: LockRequest | None) -> TorchenvError:
    if done.end is not End.EXITED:
        return ToolFailed(f"could not {purpose}: {done.reason()}")
    # Using Python 3.12.1 environment at: env error: No solution found … cause: Because a depends on …
    _, _, error = said.rpartition("error: ")
    _, unsolved, cause = error.partition("No solution found when resolving dependencies cause: ")
    if unsolved:
        hint = "leave one of them out, or loosen what is asked of it"
        reason = _clash(cause, request) or cause
        return PackagesConflict(
            f"the packages do not fit together: {reason}", hint=hint, packages=_list_names(reason)
        )
    return ToolFailed(
        f"could not {purpose}: {error or f'code {done.code}'}", hint=f"run `{done.command}` to see all of it"
    )
