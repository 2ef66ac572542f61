"""Ask whether what is planned can be had, and plan again where it cannot."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from packaging.requirements import Requirement
from packaging.version import Version

from torchenv.errors import IndexFailed
from torchenv.host.model import Host
from torchenv.index.availability import why_unreachable
from torchenv.index.pages import Fetch, ProjectPage, project
from torchenv.plan import Build, IndexFacts, Plan, Question, resolve
from torchenv.system.process import Runner


def replan_with_index(plan: Plan, ask: Question, fetch: Fetch, run: Runner, *, pythons: str) -> Plan:
    """Return the plan that holds once the indexes were asked, and `pythons`, from where one would be fetched.

    Where no interpreter can be fetched, those that are there must do. Where PyTorch's index cannot be
    reached, the package index's build is planned if it is of the same release and serves this host; else
    `IndexFailed` is raised. What an index lacks is a reason in the new plan.
    """
    if plan.build is not None and plan.build.python.path is None and why_unreachable(run, pythons):
        ask = replace(ask, wish=replace(ask.wish, offline=True))
        plan = resolve(ask)
    facts = IndexFacts()
    while plan.build is not None and plan.build.index is not None:
        # A name that nobody looks up can hold a request for minutes, so that is found out first.
        if why := why_unreachable(run, plan.build.index):
            return _from_package_index(plan.build, ask, why)
        listing = _listing(plan.build, fetch)
        has_all = _pythons(listing, plan.build, ask.host)
        if plan.build.python.minor in has_all:
            return plan
        facts = _with(facts, plan.build, has_all, listing, ask.host)
        plan = resolve(replace(ask, indexes=facts))
    return plan


Listing = list[tuple[Requirement, ProjectPage | None]]


def _listing(build: Build, fetch: Fetch) -> Listing:
    """Read the page of each package of torch's family that the plan names."""
    assert build.index is not None
    root, _, tag = build.index.rpartition("/")
    wanted = [Requirement(each) for each in build.requirements]
    with ThreadPoolExecutor(len(wanted)) as pool:
        pages = pool.map(lambda each: project(root, tag, each.name, fetch), wanted)
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
    facts: IndexFacts, build: Build, has_all: frozenset[str], listing: Listing, host: Host
) -> IndexFacts:
    key = IndexFacts.key(build.release, build.backend)
    # Another Python may do, but for one that was asked for and for what the index has for none.
    if has_all and key not in facts.pythons:
        return replace(facts, pythons={**facts.pythons, key: has_all})
    lacks = {
        requirement.name: _describe_missing(requirement, page, build, host)
        for requirement, page in listing
        if not _has(requirement, page, build.python.minor, host)
    }
    return replace(facts, lacks={**facts.lacks, key: lacks})


def _describe_missing(requirement: Requirement, page: ProjectPage | None, build: Build, host: Host) -> str:
    wanted = f"{requirement} for Python {build.python.minor} on {host.platform}"
    if page is None or not page.versions:
        return f"{build.index} has no {requirement.name}, and {wanted} is needed"
    newest = max(page.versions)
    return f"{build.index} does not have {wanted}; its newest is {newest}"


def _from_package_index(build: Build, ask: Question, why: str) -> Plan:
    plan = resolve(replace(ask, indexes=IndexFacts(unreachable=True)))
    if plan.build is None or plan.build.release != build.release:
        raise IndexFailed(
            f"{build.index} cannot be reached ({why}), and no build on the package index suits this host",
            hint="check the network and its proxy, or name a mirror with TORCHENV_TORCH_INDEX",
        )
    return plan
