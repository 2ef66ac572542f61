"""One page on where things stand: the host, its environments, proofs, switches, checkpoints and an audit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from torchenv.host.model import Host
from torchenv.render.environment import columns, describe_reads
from torchenv.render.host import describe_host
from torchenv.system.values import frozen
from torchenv.workspace.manifest import Manifest
from torchenv.workspace.records import Environment, EnvironmentKind, Run, State

if TYPE_CHECKING:
    from torchenv.audit import AuditReport, Finding


@frozen(kw_only=True)
class ReportData:
    """All that the page tells of, gathered at one moment; `audit` only where one was asked for.

    `previous` is the environment that a rollback leads to.
    """

    at: datetime
    root: str
    host: Host
    manifest: Manifest
    previous: Environment | None = None
    audit: AuditReport | None = None


@frozen(kw_only=True)
class Section:
    """A part of the page: rows under a head, or sentences."""

    title: str
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    lines: tuple[str, ...] = ()


def describe_report(standing: ReportData) -> str:
    """Write the page for a terminal."""
    blocks = [f"torchenv report, {describe_moment(standing.at)}, {standing.root}"]
    for section in list_sections(standing):
        rows = columns([section.head, *section.rows]).splitlines() if section.rows else []
        body = [f"  {line}".rstrip() for line in (*section.lines, *rows)]
        blocks.append("\n".join([section.title, *body]))
    return "\n\n".join(blocks)


def list_sections(standing: ReportData) -> Iterator[Section]:
    """Yield the parts of the report, as rows and sentences."""
    manifest = standing.manifest
    yield Section(title="Host", lines=tuple(describe_host(standing.host).splitlines()))
    environments = [
        environment for environment in manifest.environments if environment.state is not State.REMOVED
    ]
    yield Section(
        title="Environments",
        head=("", "number", "name", "torch", "Python", "state", "checkpoints"),
        rows=tuple(_environment(environment, manifest) for environment in environments),
        lines=() if environments else ("none yet: make one with `torchenv create`",),
    )
    yield Section(
        title="Proofs",
        head=("environment", "check", "result", "when", "host", "devices", "torch", "said"),
        rows=tuple(row for environment in environments for row in _proofs(environment)),
        lines=() if any(environment.proofs for environment in environments) else ("none yet",),
    )
    yield Section(
        title="Switches",
        head=("when", "from", "to", "why"),
        rows=tuple(
            (describe_moment(switch.at), str(switch.from_ or ""), str(switch.to), switch.why)
            for switch in manifest.switches
        ),
        lines=() if manifest.switches else ("none yet",),
    )
    yield from _checkpoints(manifest)
    if standing.audit is not None:
        yield _audit(standing.audit)


def _environment(environment: Environment, manifest: Manifest) -> tuple[str, ...]:
    return (
        "active" if environment.number == manifest.current else "",
        str(environment.number),
        environment.name,
        environment.torch or "none",
        environment.python.version,
        environment.state.value
        if environment.kind is EnvironmentKind.BUILT
        else f"adopted, {environment.state.value}",
        describe_reads(environment),
    )


def _proofs(environment: Environment) -> Iterator[tuple[str, ...]]:
    for proof in environment.proofs:
        yield (
            str(environment.number),
            proof.what,
            "passed" if proof.passed else "failed",
            describe_moment(proof.at),
            proof.host or "",
            ", ".join(proof.devices) or "none",
            (proof.git or "")[:12],
            "; ".join(proof.said),
        )


def _checkpoints(manifest: Manifest) -> Iterator[Section]:
    numbers = tuple(environment.number for environment in manifest.environments if environment.on_disk)
    yield Section(
        title="Checkpoints",
        head=("run", "newest", *(f"newest for {number}" for number in numbers)),
        rows=tuple(
            (run.path, run.newest or "", *(_reads(run, number) for number in numbers))
            for run in manifest.runs
        ),
        lines=() if manifest.runs else ("none were scanned",),
    )
    yield Section(
        title="Kept checkpoints",
        head=("path", "readable by"),
        rows=tuple((item.path, ", ".join(map(str, item.readable_by))) for item in manifest.kept),
        lines=() if manifest.kept else ("none are kept",),
    )


def _reads(run: Run, number: int) -> str:
    return "not scanned" if number in run.unjudged_for else run.newest_readable.get(number, "none")


def _audit(report: AuditReport) -> Section:
    """Sum the findings up by rule, the gravest first; `torchenv audit` tells each."""
    found: dict[tuple[int, str], list[Finding]] = {}
    for finding in report.findings:
        found.setdefault((-finding.severity, finding.rule), []).append(finding)
    return Section(
        title=f"Audit for torch {report.release}",
        head=("severity", "rule", "found", "first at", "what to do"),
        rows=tuple(
            (str(of[0].severity), rule, str(len(of)), f"{of[0].path}:{of[0].line}", of[0].remedy)
            for (_, rule), of in sorted(found.items())
        ),
        lines=(
            f"{len(report.findings)} findings in {report.files} files",
            *(f"{skipped.path} could not be read: {skipped.why}" for skipped in report.unread),
        ),
    )


# The words that a reader looks for, and how much they matter.
MARKS: Mapping[str, str] = {
    "failed": "bad",
    "error": "bad",
    "warning": "note",
    "passed": "good",
    "proven": "good",
    "active": "good",
}


def describe_moment(at: datetime) -> str:
    """Return a moment as people read it, in UTC."""
    return f"{at:%Y-%m-%d %H:%M} UTC"
