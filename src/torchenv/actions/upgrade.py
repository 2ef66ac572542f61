"""The careful road to a new release: what speaks for and against it, and the pin for those who stay."""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path

from torchenv.errors import InputError
from torchenv.plan import Outcome, Plan
from torchenv.plan.advice import AT_BOUNDARY, UPGRADE
from torchenv.system.disk import rewrite_text
from torchenv.system.values import frozen
from torchenv.workspace.manifest import Manifest
from torchenv.workspace.records import Environment, Run


class Verdict(Enum):
    """What the findings amount to, by the exit code of `upgrade --check`."""

    GO = "go"
    AT_BOUNDARY = "go-at-checkpoint-boundary"
    STAY = "stay"
    CANNOT = "cannot"

    @property
    def exit_code(self) -> int:
        """Return 0 for go, 1 for not now, 3 where nothing suits."""
        return {Verdict.GO: 0, Verdict.AT_BOUNDARY: 1, Verdict.STAY: 1, Verdict.CANNOT: 3}[self]


@frozen
class UpgradeFinding:
    """One thing that was looked at: on which subject, what was found, and what would change it."""

    subject: str
    found: str
    cure: str | None = None


@frozen(kw_only=True)
class Findings:
    """All that was looked at before the step, with the verdict and the plan it is about.

    `old` is the active environment; where it `is_recorded` not yet, it is the shell's or the project's, as it
    will be recorded once the upgrade goes on.
    """

    verdict: Verdict
    plan: Plan
    old: Environment | None
    is_recorded: bool
    findings: tuple[UpgradeFinding, ...]
    reasons: tuple[str, ...]


def judge_upgrade(plan: Plan) -> Verdict:
    """Return the verdict that the plan and its advice amount to."""
    if plan.build is None or plan.outcome is Outcome.BLOCKED:
        return Verdict.CANNOT
    if plan.outcome is Outcome.FALLBACK:
        return Verdict.STAY
    return {UPGRADE: Verdict.GO, AT_BOUNDARY: Verdict.AT_BOUNDARY}.get(plan.advice.verdict, Verdict.STAY)


def list_boats(manifest: Manifest, old: Environment, runs: tuple[Run, ...]) -> tuple[str, ...]:
    """Return the newest save of each run that the old environment reads and that is not protected yet."""
    kept = {boat.path for boat in manifest.kept}
    newest = (
        f"{run.path}/{run.newest_readable[old.number]}" for run in runs if old.number in run.newest_readable
    )
    return tuple(path for path in newest if path not in kept)


def find_made(manifest: Manifest, plan: Plan, since: Environment | None) -> Environment | None:
    """Return an environment that an upgrade which was stopped has built already."""
    build = plan.build
    if build is None:
        return None
    after = since.number if since is not None else 0
    made = [
        one
        for one in manifest.environments
        if one.live and one.number > after and (one.torch, one.backend) == (build.torch, build.backend.tag)
    ]
    return made[-1] if made else None


def pin_profile(path: Path, line: str, backend: str | None) -> None:
    """Write into a project's profile that it stays on a line such as `2.14`, and on which backend.

    Everything else stays as it is written. Raises `InputError` where the file cannot be read or written.
    """
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        document = (
            tomlkit.parse(path.read_text(encoding="utf-8")) if os.path.exists(path) else tomlkit.document()
        )
        document.setdefault("schema", 1)
        document.setdefault("torch", tomlkit.table())["version"] = line
        if backend is not None:
            document.setdefault("backend", tomlkit.table())["only"] = [backend]
        rewrite_text(path, tomlkit.dumps(document))
    except (OSError, TOMLKitError, TypeError, AttributeError, UnicodeDecodeError) as error:
        hint = f'write `version = "{line}"` below [torch] in it'
        raise InputError(f"`{path}` cannot be changed: {error}", hint=hint) from None
