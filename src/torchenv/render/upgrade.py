"""An upgrade as people and programs read it: the page of findings, and how far the road was walked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchenv.actions.upgrade import Findings, Verdict
    from torchenv.workspace.journal import Journal

SCHEMA = "torchenv.upgrade/1"

_WORDS = {
    "go": "Go: upgrade now",
    "go-at-checkpoint-boundary": "Go: upgrade when you next start a run",
    "stay": "Stay on the release that you have",
    "cannot": "Nothing suits this machine",
}
# Of the machines of a fleet, which are not the one that this runs on.
_WORDS_OF_OTHERS = {
    **_WORDS,
    "stay": "Stay on the release that they have",
    "cannot": "Nothing suits",
}


def describe_findings(found: Findings) -> str:
    """Describe the verdict, why, and each thing that was looked at with what would change it."""
    return "\n".join(_lines(found))


def _lines(found: Findings) -> Iterator[str]:
    yield _WORDS[found.verdict.value]
    yield from (f"  {reason}" for reason in found.reasons)
    width = max((len(finding.subject) for finding in found.findings), default=0)
    for finding in found.findings:
        yield f"{finding.subject:{width}}  {finding.found}"
        if finding.cure:
            yield f"{'':{width}}  → {finding.cure}"


def encode_upgrade(found: Findings | None, journal: Journal | None) -> dict[str, Any]:
    """Return the `torchenv.upgrade/1` document."""
    return {
        "schema": SCHEMA,
        "verdict": found.verdict.value if found else None,
        "reasons": list(found.reasons) if found else [],
        "findings": [
            {"subject": finding.subject, "found": finding.found, "cure": finding.cure}
            for finding in (found.findings if found else ())
        ],
        "from": journal.old if journal else _number_of_old(found),
        "to": journal.new if journal else None,
        "done": list(journal.done) if journal else [],
        "next": journal.next if journal else None,
        "kept": list(journal.kept) if journal else [],
    }


def _number_of_old(found: Findings | None) -> int | None:
    return found.old.number if found and found.old and found.is_recorded else None


def describe_host_verdicts(verdicts: dict[Verdict, list[str]], reasons: dict[Verdict, list[str]]) -> str:
    """Describe which machines of a fleet can go, one block a verdict."""
    lines = []
    for verdict, names in verdicts.items():
        shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
        lines.append(f"{_WORDS_OF_OTHERS[verdict.value]}: {len(names)} ({shown})")
        lines += [f"  {reason}" for reason in dict.fromkeys(reasons[verdict])]
    return "\n".join(lines)
