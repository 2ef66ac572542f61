"""What an installer printed when it failed, turned into the user's words with the remedy."""

from __future__ import annotations

import re
from urllib.parse import unquote

from torchenv.errors import IndexFailed, NothingSuits, ToolFailed, TorchenvError, Unobtainable
from torchenv.installers import LockRequest, name_of
from torchenv.system.process import Completed, End


def explain_failure(done: Completed, purpose: str, request: LockRequest | None = None) -> TorchenvError:
    """Explain why `purpose` failed; where the cause is not known, give what the tool said."""
    said = _one_line(done.err or done.out)
    return (
        _no_space(said, purpose)
        or _no_cache(said)
        or _not_in_cache(said)
        or _other_file(said)
        or _find_gone(said)
        or _unreachable(said)
        or _find_unbuilt(said, purpose)
        or (_lacking(said, request) if request else None)
        or _anything_else(done, said, purpose)
    )


def conflict(said: str, request: LockRequest, others: str = "") -> NothingSuits | None:
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
            return NothingSuits(
                f"{free[0] if free else who + version} wants {name}{wanted},"
                f" and the plan has {planned[name]}",
                hint=f"leave {who} out, or plan a release that it takes: {name}{wanted}",
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
    return re.sub(r"\s+", " ", said).strip()


def _no_space(said: str, purpose: str) -> ToolFailed | None:
    # Windows says it with error 112, others with 28.
    if not re.search(r"No space left on device|not enough space on the disk|os error 112", said):
        return None
    hint = "free some, or set UV_CACHE_DIR and the workspace (`--root`) to a disk that has more"
    return ToolFailed(f"could not {purpose}: no space left on the disk", hint=hint)


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
        hint="it was damaged on its way or replaced on the index: find out which before you trust it",
    )


def _find_gone(said: str) -> IndexFailed | None:
    # Failed to download `x==1` cause: Failed to fetch: https://… cause: HTTP status client error (404 …)
    found = re.search(r"`([^`]+==[^`]+)` .*?Failed to fetch: `?(http[^` ]+)`?.*? \((40[34]|410) ", said)
    if found is None:
        return None
    what, url, status = found.groups()
    return IndexFailed(
        f"{what} can no longer be fetched: {unquote(url)} answered {status}",
        hint="look for it in a cache or on a mirror, or make the lock again without it",
    )


def _unreachable(said: str) -> IndexFailed | None:
    found = re.search(r"Failed to fetch: `?(http[^` ]+)`?(.*)", said)
    if found is None:
        return None
    url, causes = found.groups()
    status = re.search(r"\((\d\d\d [^)]+)\)", causes)
    if status is not None:
        login = status[1].startswith(("401", "403", "407"))
        hint = "give the login through netrc or keyring" if login else "try again later"
        return IndexFailed(f"{unquote(url)} answered {status[1]}", hint=hint)
    why = causes.rpartition("cause: ")[2].strip()
    return IndexFailed(
        f"cannot reach {unquote(url)}: {why or 'no answer'}",
        hint="check the network and the proxy, or name a mirror with"
        " TORCHENV_TORCH_INDEX and TORCHENV_PACKAGE_INDEX",
    )


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
            hint="take another Python or another release",
        )
    found = re.search(
        r"Because (?P<none>[\w.\-]+) was not found|no version of (?P<name>[\w.\-]+?)(?P<version>[=<>!~]\S*)|"
        r"only (?P<some>[\w.\-]+?)[=<>{]\S* (?:is|are) available",
        said,
    )
    if found is None:
        return None
    name = found["none"] or found["name"] or found["some"]
    asked = re.search(rf"depends on ({re.escape(name)}[=<>!~][^ ]*|{re.escape(name)})[ ,]", said)
    what = asked[1].rstrip(",") if asked else f"{name}{found['version'] or ''}"
    hint = "look at what the index lists, or choose another version or backend"
    return Unobtainable(f"{_index(name, request)} has no {what}", hint=hint)


def _index(name: str, request: LockRequest) -> str:
    family = {*request.family, *map(name_of, request.requirements)}
    index = request.torch_index if name in family else None
    return index or request.package_index or "the default package index"


def _anything_else(done: Completed, said: str, purpose: str) -> TorchenvError:
    if done.end is not End.EXITED:
        return ToolFailed(f"could not {purpose}: {done.reason()}")
    # Using Python 3.12.1 environment at: env error: No solution found … cause: Because a depends on …
    _, _, error = said.rpartition("error: ")
    _, unsolved, cause = error.partition("No solution found when resolving dependencies cause: ")
    if unsolved:
        hint = "leave one of them out, or loosen what is asked of it"
        return NothingSuits(f"the packages do not go together: {cause}", hint=hint)
    return ToolFailed(f"could not {purpose}: {error or f'code {done.code}'}", hint=f"it was `{done.command}`")
