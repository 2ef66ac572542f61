"""Ask the index of a plan whether it has what is planned, and plan again where it has not."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from packaging.requirements import Requirement
from packaging.version import Version

from torchenv.errors import IndexFailed
from torchenv.host import Host
from torchenv.indexes import Fetch, ProjectPage, project
from torchenv.installers.reach import why_unreachable
from torchenv.plan import Build, IndexFacts, Plan, Question, resolve
from torchenv.process import Runner


def asked_again(plan: Plan, ask: Question, fetch: Fetch, run: Runner) -> Plan:
    """Give the plan that holds once the indexes were asked.

    Where PyTorch's index cannot be reached, the package index's build is planned if it is of the same release
    and serves this host; else `IndexFailed` is raised. What an index lacks is a reason in the new plan.
    """
    facts = IndexFacts()
    while plan.build is not None and plan.build.index is not None:
        # A name that nobody looks up can hold a request for minutes, so that is found out first.
        if why := why_unreachable(run, plan.build.index):
            return _from_package_index(plan.build, ask, why)
        lacks = _lacking(plan.build, ask.host, fetch)
        if not lacks:
            return plan
        facts = IndexFacts(lacks={**facts.lacks, plan.build.backend.tag: lacks})
        plan = resolve(replace(ask, indexes=facts))
    return plan


def _lacking(build: Build, host: Host, fetch: Fetch) -> dict[str, str]:
    """Say of each package of torch's family that the plan names what its index lacks."""
    assert build.index is not None
    root, _, tag = build.index.rpartition("/")
    wanted = [Requirement(each) for each in build.requirements]
    with ThreadPoolExecutor(len(wanted)) as pool:
        pages = list(pool.map(lambda each: project(root, tag, each.name, fetch), wanted))
    lacks = {}
    for requirement, page in zip(wanted, pages, strict=True):
        version = Version(next(iter(requirement.specifier)).version)
        if page is None or not page.has(version, python=build.python.minor, platform=host.platform):
            lacks[requirement.name] = _said(requirement, page, build, host)
    return lacks


def _said(requirement: Requirement, page: ProjectPage | None, build: Build, host: Host) -> str:
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
