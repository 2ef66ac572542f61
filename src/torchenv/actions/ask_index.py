"""Ask whether what is planned can be had, and plan again where it cannot."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

from packaging.requirements import Requirement
from packaging.version import Version

from torchenv.errors import IndexFailed, IndexUnreachable, TorchenvError
from torchenv.host.model import Host
from torchenv.index.http import Missing, Network
from torchenv.index.pages import Fetch, ProjectPage, fetcher, project
from torchenv.index.together import ask_together
from torchenv.plan import Build, IndexFacts, Plan, Question, resolve
from torchenv.plan.values import Remark
from torchenv.system.addresses import host_of
from torchenv.system.documents import Table
from torchenv.system.values import frozen

# Seconds that a plan waits for an index, all in all.
PLAN_SECONDS = 2.0

# How long a plan believes what an index answered.
REMEMBERED = timedelta(hours=1)


@dataclass
class IndexMemory:
    """What the indexes answered of late: the text of each page, by its address.

    `answers` holds the time of each answer and its text, None for a page that was not there; `now` is the
    time of this run. `is_believed` says whether an answer of an earlier run will do.
    """

    now: datetime
    is_believed: bool = True
    answers: dict[str, tuple[datetime, str | None]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str, now: datetime, *, is_believed: bool = True) -> IndexMemory:
        """Read what an earlier run wrote; what is damaged or too old is forgotten."""
        memory = cls(now, is_believed)
        try:
            pages = Table.from_json(text, "answers of the indexes").table("pages")
            for url in pages:
                page = pages.table(url)
                at = datetime.fromisoformat(page.get("at", str))
                if timedelta() <= now - at < REMEMBERED:
                    memory.answers[url] = (at, page.maybe("text", str))
        except (TorchenvError, ValueError, TypeError):
            return cls(now, is_believed)
        return memory

    def write(self) -> str:
        """Write it for a later run."""
        pages = {
            url: {"at": at.isoformat(), **({} if text is None else {"text": text})}
            for url, (at, text) in self.answers.items()
        }
        return json.dumps({"schema": 1, "pages": pages})

    def fetch(self, ask: Fetch, url: str) -> str | Missing:
        """Return what was answered within the hour, else ask and remember."""
        if self.is_believed and url in self.answers:
            text = self.answers[url][1]
            return Missing(404) if text is None else text
        answer = ask(url)
        self.answers[url] = (self.now, None if isinstance(answer, Missing) else answer)
        return answer


@frozen(kw_only=True)
class IndexQuery:
    """How the indexes are asked: over which network, with what memory, and `pythons`, where one is fetched.

    `named_by_user` are hosts of mirrors: of theirs it is said when a page links to another host.
    `is_impatient` says that a slow index is not waited for: the catalogue decides then.
    """

    network: Network
    memory: IndexMemory | None = None
    pythons: str
    named_by_user: frozenset[str] = frozenset()
    is_impatient: bool = False

    @property
    def fetch(self) -> Fetch:
        """What reads the pages."""
        ask = fetcher(self.network)
        return ask if self.memory is None else partial(self.memory.fetch, ask)


def replan_with_index(plan: Plan, ask: Question, query: IndexQuery) -> Plan:
    """Return the plan that holds once the indexes were asked.

    Where no interpreter can be fetched, those that are there must do. Where PyTorch's index cannot be
    reached, the package index's build is planned if it is of the same release and serves this host; else
    `IndexFailed` is raised. What an index lacks is a reason in the new plan, and no hint of a blocked one
    names it.
    """
    needs_python = plan.build is not None and plan.build.python.path is None
    if needs_python and query.network.explain_silence(query.pythons):
        ask = replace(ask, wish=replace(ask.wish, offline=True))
        plan = resolve(ask)
    facts = IndexFacts()
    without_torch: list[str] = []
    is_torch_there = False
    remarks: list[Remark] = []
    while plan.build is not None and plan.build.index is not None:
        try:
            listing = _listing(plan.build, query.fetch)
        except IndexUnreachable as error:
            if query.is_impatient and error.is_slow:
                return _add_remarks(plan, (_make_slow_remark(plan.build),))
            return _from_package_index(plan.build, ask, error)
        if listing[0][1] is None:
            without_torch.append(plan.build.index)
        else:
            is_torch_there = True
        remarks += _find_foreign_links(plan.build, listing, query.named_by_user)
        has_all = _pythons(listing, plan.build, ask.host)
        if plan.build.python.minor in has_all:
            break
        facts = _with(facts, plan.build, has_all, listing, ask)
        plan = resolve(replace(ask, indexes=facts))
    if plan.build is None and without_torch and not is_torch_there:
        raise _make_wrong_root_error(without_torch)
    return _add_remarks(_check_offers(plan, ask, facts, query), remarks)


def _check_offers(plan: Plan, ask: Question, facts: IndexFacts, query: IndexQuery) -> Plan:
    """Return a blocked plan whose hint names no build that its index lacks."""
    asked: set[tuple[str, str]] = set()
    while plan.build is None:
        unasked = [
            (build, key)
            for build in plan.offered
            if build.index is not None
            and (key := (IndexFacts.key(build.release, build.backend), build.python.minor)) not in asked
        ]
        if not unasked:
            break
        build, key = unasked[0]
        asked.add(key)
        try:
            listing = _listing(build, query.fetch)
        except IndexFailed as error:
            said = f"could not check that the index has the build that the hint names: {error.message}"
            return _add_remarks(plan, (Remark("index-not-asked", said),))
        has_all = _pythons(listing, build, ask.host)
        if build.python.minor not in has_all:
            facts = _with(facts, build, has_all, listing, ask)
            plan = resolve(replace(ask, indexes=facts))
    return plan


Listing = list[tuple[Requirement, ProjectPage | None]]


def _listing(build: Build, fetch: Fetch) -> Listing:
    """Read the page of each package of torch's family that the plan names."""
    assert build.index is not None
    index = build.index
    wanted = [Requirement(text) for text in build.requirements]
    pages = ask_together(lambda requirement: project(index, requirement.name, fetch), wanted)
    return list(zip(wanted, pages, strict=True))


def _pythons(listing: Listing, build: Build, host: Host) -> frozenset[str]:
    """Return the Pythons for which the index has every package."""
    known = {build.python.minor, *build.release.pythons_of(build.backend, host.platform)}
    return frozenset(
        python
        for python in known
        if all(_has(requirement, page, python, host) for requirement, page in listing)
    )


def _has(requirement: Requirement, page: ProjectPage | None, python: str, host: Host) -> bool:
    version = Version(next(iter(requirement.specifier)).version)
    return page is not None and page.has(version, python=python, platform=host.platform)


def _with(
    facts: IndexFacts, build: Build, has_all: frozenset[str], listing: Listing, ask: Question
) -> IndexFacts:
    key, host = IndexFacts.key(build.release, build.backend), ask.host
    # Another Python may do, but for one that was asked for and for what the index has for none.
    if has_all and key not in facts.pythons and not ask.wish.python:
        return replace(facts, pythons={**facts.pythons, key: has_all})
    lacks = {
        requirement.name: _describe_missing(requirement, page, build, host)
        for requirement, page in listing
        if not _has(requirement, page, build.python.minor, host)
    }
    return replace(facts, lacks={**facts.lacks, key: lacks})


def _describe_missing(requirement: Requirement, page: ProjectPage | None, build: Build, host: Host) -> str:
    wanted = f"{requirement} for Python {build.python.minor} on {host.platform}"
    if page is None:
        return f"{build.index} has no page of {requirement.name}, and {wanted} is needed"
    if not page.versions:
        return f"{build.index} has no wheel of {requirement.name}, and {wanted} is needed"
    newest = max(page.versions)
    return f"{build.index} does not have {wanted}; its newest is {newest}"


def _find_foreign_links(build: Build, listing: Listing, named: frozenset[str]) -> list[Remark]:
    """Describe where a mirror's pages lead to files of another host, which may not be reachable."""
    assert build.index is not None
    own = host_of(build.index)
    if own not in named:
        return []
    elsewhere = {
        host
        for _, page in listing
        if page is not None
        for file in page.files
        if (host := host_of(file.url)) not in (own, "")
    }
    return [
        Remark("index-links-elsewhere", f"the pages of {build.index} link to files on another host: {host}")
        for host in sorted(elsewhere)
    ]


def _from_package_index(build: Build, ask: Question, error: IndexUnreachable) -> Plan:
    plan = resolve(replace(ask, indexes=IndexFacts(unreachable=True)))
    if plan.build is None or plan.build.release != build.release:
        # Another backend's build may be there, which was not asked for.
        torch = f"torch {build.release.version}"
        lacking = f"{' or '.join(ask.wish.backends)} build of {torch}"
        if not ask.wish.backends:
            lacking = f"build of {torch} for this host"
        raise IndexFailed(
            f"{build.index} cannot be reached ({error.why}), and the default package index has no {lacking}",
            hint=f"{error.hint}; `torchenv plan --offline` plans from the catalogue alone",
        )
    said = f"{build.index} cannot be reached: {error.why}"
    return _add_remarks(plan, (Remark("index-unreachable", said),))


def _make_wrong_root_error(asked: list[str]) -> IndexFailed:
    """Return the error where no index below a root has a page of torch: it is hardly an index of torch."""
    others = f", and neither do those of {len(asked) - 1} other backends" if len(asked) > 1 else ""
    return IndexFailed(
        f"{asked[0]}/torch/ does not exist{others}: this index has no page for torch",
        hint="set TORCHENV_TORCH_INDEX to the root whose `ROOT/cu132/torch/` lists wheels, or mark where the"
        " backend stands: TORCHENV_TORCH_INDEX='https://mirror.example/{backend}/+simple'",
    )


def _make_slow_remark(build: Build) -> Remark:
    said = f"{build.index} did not answer in time: what it serves is taken from the catalogue"
    return Remark("index-not-asked", said)


def _add_remarks(plan: Plan, remarks: Sequence[Remark]) -> Plan:
    return replace(plan, warnings=(*plan.warnings, *remarks)) if remarks else plan
