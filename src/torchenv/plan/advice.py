"""What a careful colleague would say about taking the step."""

from __future__ import annotations

from torchenv.plan.values import Advice, Build, Outcome, Question


def advise(ask: Question, outcome: Outcome, build: Build | None, why: tuple[str, ...]) -> Advice:
    """Weigh a decision against what is in use: upgrade, upgrade at a checkpoint boundary, or stay."""
    if outcome is not Outcome.AS_REQUESTED or build is None:
        return Advice("stay", why)
    active = ask.host.active
    new = f"torch {build.release.version} ({build.backend.tag})"
    if active is None or active.torch is None:
        return Advice("upgrade", (f"{new} suits this machine, and nothing is in use that could be lost",))
    if active.torch.base_version == build.release.version.base_version:
        return Advice("stay", (f"torch {active.torch} is in use already",))
    if ask.wish.distributed and ask.catalogue.closed_door(active.torch, build.release.version):
        reason = f"distributed checkpoints saved by {build.release.version} cannot be read by {active.torch}"
        return Advice("upgrade-at-checkpoint-boundary", (reason, "start a new line of checkpoints first"))
    return Advice("upgrade", (f"{new} suits this machine; {active.torch} is kept beside it",))
