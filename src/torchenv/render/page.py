"""The report as one HTML page that needs no other file, with the picture of the training runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchenv import __version__
from torchenv.render.report import MARKS, ReportData, describe_moment, list_sections
from torchenv.system.values import frozen

if TYPE_CHECKING:
    from torchenv.checkpoints.scan.runs import Judge, Save, Saves
    from torchenv.workspace.manifest import Manifest
    from torchenv.workspace.records import Environment

_TEMPLATE = Path(__file__).with_name("page.html.jinja")

# What a mark says, and its shape within 7 units of the middle: shape and colour tell the same.
STATES = {
    "readable": "readable",
    "readable-with-code": "readable with code",
    "downgradable": "readable once it is downgraded",
    "unreadable": "unreadable",
    "unknown": "unknown",
    "incomplete": "incomplete",
    "writing": "being written",
    "missing": "kept, and no longer there",
    "kept": "kept as a lifeboat",
}
_SHAPES = {
    "readable": "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
    "readable-with-code": "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0zM0-4v8",
    "downgradable": "M0-5L5 0L0 5L-5 0z",
    "unreadable": "M-4-4L4 4M4-4L-4 4",
    "unknown": "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
    "incomplete": "M-4-4h8v8h-8z",
    "writing": "M-4 3h8M0-5v6M-3-2L0 1L3-2",
    "missing": "M0-5L5 4h-10z",
    "kept": "M-3-4h6v7l-3-2l-3 2z",
}


@frozen(kw_only=True)
class Mark:
    """One save in the picture: when it was made (seconds since 1970), and who reads it.

    `by` maps the number of an environment to a verdict; `state` is set where no environment can read it.
    """

    path: str
    at: float
    by: Mapping[int, str]
    state: str | None = None
    kept: bool = False
    why: str = ""


@frozen(kw_only=True)
class Timeline:
    """One run of training, its saves from the oldest to the newest."""

    path: str
    marks: tuple[Mark, ...]


def list_timelines(runs: tuple[Saves, ...], judge: Judge, manifest: Manifest) -> tuple[Timeline, ...]:
    """Return the runs of a scan as lines of marks; a kept checkpoint that is gone has a mark, too."""
    kept = {boat.path for boat in manifest.kept}
    seen = {save.path for run in runs for save in run.saves}
    seen |= {part.path for run in runs for save in run.saves for part in save.parts}
    lines = [
        Timeline(path=run.path, marks=tuple(_mark(save, judge, kept) for save in run.saves)) for run in runs
    ]
    gone = [boat for boat in manifest.kept if boat.path not in seen]
    lost = tuple(
        Mark(path=boat.path, at=_seconds(boat.saved), by={}, state="missing", kept=True) for boat in gone
    )
    return (*lines, *((Timeline(path="kept checkpoints that are gone", marks=lost),) if lost else ()))


def _seconds(at: datetime | None) -> float:
    return at.timestamp() if at else 0.0


def _mark(save: Save, judge: Judge, kept: set[str]) -> Mark:
    problems = [message for part in save.parts for _, message in part.found.problems]
    verdicts = {environment.number: _verdict(save, environment, judge) for environment in judge.environments}
    return Mark(
        path=save.path,
        at=save.modification_ns / 1e9,
        by=verdicts if save.complete else {},
        state=None if save.complete else "writing" if save.being_written else "incomplete",
        kept=not kept.isdisjoint({save.path, *(part.path for part in save.parts)}),
        why="; ".join(problems[:3]),
    )


def _verdict(save: Save, environment: Environment, judge: Judge) -> str:
    verdict = str(judge.of_save(save, environment))
    if verdict == "unreadable" and judge.of_copy(save, environment):
        return "downgradable"
    return verdict


def render_page(report: ReportData, timelines: tuple[Timeline, ...], wrong: tuple[str, ...] = ()) -> str:
    """Return the page; every word from outside is escaped. `wrong` are sentences on what needs attention."""
    # 40 ms, which only this page pays.
    import jinja2

    manifest = report.manifest
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=False)
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    active, previous = manifest.active, report.previous
    listed = [one for one in manifest.environments if one.on_disk]
    judged = previous or active
    return template.render(
        root=report.root,
        at=describe_moment(report.at),
        at_iso=report.at.isoformat(),
        active=str(active) if active else None,
        active_note=_describe_environment(active),
        previous=str(previous) if previous else None,
        previous_note=_describe_environment(previous),
        machine=f"{report.host.system}-{report.host.machine}",
        devices=_describe_devices(report),
        wrong=wrong,
        picture={
            "runs": timelines,
            "environments": [
                {"number": one.number, "label": _label(one, active, previous)} for one in reversed(listed)
            ],
            "judge": judged.number if judged else None,
        },
        newest=list(_newest(timelines, [one.number for one in reversed(listed)])),
        sections=[section for section in list_sections(report) if section.title != "Checkpoints"],
        marks=MARKS,
        states=list(STATES.items()),
        shapes=_SHAPES,
        shapes_json=_script(_SHAPES),
        words_json=_script(STATES),
        data=_script(_encode(timelines, report)),
        version=__version__,
    )


def _describe_environment(environment: Environment | None) -> str:
    if environment is None:
        return ""
    torch = f"torch {environment.torch}" if environment.torch else "no torch"
    return f"{torch}, Python {environment.python.version}, {environment.state.value}"


def _describe_devices(report: ReportData) -> str:
    host = report.host
    names = [device.name for vendor in (host.nvidia, host.amd, host.intel) for device in vendor.devices]
    chip = host.apple.chip or None
    return ", ".join(dict.fromkeys([*names, *([chip] if chip else [])])) or "no GPU found"


def _label(environment: Environment, active: Environment | None, previous: Environment | None) -> str:
    if environment == active:
        return f"{environment} (active)"
    return f"{environment} (previous)" if environment == previous else str(environment)


def _newest(timelines: tuple[Timeline, ...], numbers: list[int]) -> Iterator[tuple[str, ...]]:
    for line in timelines:
        whole = [mark for mark in reversed(line.marks) if mark.state is None]
        readable = [
            next((mark.path for mark in whole if mark.by.get(number, "").startswith("readable")), "none")
            for number in numbers
        ]
        yield (line.path, whole[0].path if whole else "none", *readable)


def _encode(timelines: tuple[Timeline, ...], report: ReportData) -> dict[str, Any]:
    return {
        "runs": [
            {
                "path": line.path,
                "words": f"{len(line.marks)} save" + ("" if len(line.marks) == 1 else "s"),
                "saves": [
                    {
                        "path": mark.path,
                        "at": mark.at,
                        "by": mark.by,
                        **({"state": mark.state} if mark.state else {}),
                        **({"kept": True} if mark.kept else {}),
                        **({"why": mark.why} if mark.why else {}),
                    }
                    for mark in line.marks
                ],
            }
            for line in timelines
        ],
        "switches": [
            {"at": move.at.timestamp(), "words": _describe_move(move.at, move.from_, move.to, move.why)}
            for move in report.manifest.switches
        ],
        "total": sum(len(line.marks) for line in timelines),
    }


def _describe_move(at: datetime, before: int | None, after: int, why: str) -> str:
    origin = f"from environment {before} " if before else ""
    return f"{describe_moment(at)}: {why} {origin}to environment {after}"


def _script(value: object) -> Any:
    """Return JSON that can stand inside a script element, whatever the names in it hold."""
    import markupsafe

    text = json.dumps(value, ensure_ascii=True)
    # `</script>` and `<!--` would end the element or change how it is read.
    return markupsafe.Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))  # noqa: S704
