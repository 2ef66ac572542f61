"""What a careful colleague would say, by what is in use and what hangs on it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from packaging.version import Version
from tests.plan.hosts import CATALOGUE, linux, nvidia, recorded

from torchenv.host.model import Host, SeenEnvironment
from torchenv.plan import Known, Lifeboat, Question, Wish, resolve
from torchenv.plan.values import Advice

RTX_4090 = ("NVIDIA GeForce RTX 4090", "8.9")
FITS = "torch 2.15.0 (cu132) suits the NVIDIA GeForce RTX 4090 with driver 580.95.05"

KEPT = "runs/a/step-100 is protected for 2.14.1+cu130"
COSTS = "rolling back loses the work since then"


def advice(host: Host, known: Known | None = None, *, distributed: bool = False) -> Advice:
    wish = Wish(version="2.15", distributed=distributed)
    return resolve(Question(host=host, wish=wish, catalogue=CATALOGUE, known=known or Known())).advice


def using(torch: str, host: Host | None = None) -> Host:
    host = host or linux(nvidia=nvidia("580.95.05", RTX_4090))
    seen = SeenEnvironment(path="/p/.venv", python=Version("3.12.4"), torch=Version(torch), active=True)
    return replace(host, environments=(seen,))


def test_a_current_card_and_driver_upgrade_now_in_a_clean_environment() -> None:
    assert advice(using("2.14.1+cu130")) == Advice(
        "upgrade", (f"{FITS}, in a new environment; 2.14.1+cu130 stays beside it",)
    )


def test_nothing_in_use_is_nothing_to_lose() -> None:
    assert advice(recorded("cpu-only-linux")) == Advice(
        "upgrade", ("torch 2.15.0 (cpu) suits this machine, and no environment is active yet",)
    )


def test_below_a_floor_the_line_that_still_fits_is_named() -> None:
    found = advice(using("2.14.1+cu126", recorded("v100-driver-580")))
    assert found.verdict == "stay"
    assert found.reasons[-1] == "torch 2.14.1 (cu126) still suits this machine"


@pytest.mark.parametrize(
    ("torch", "said"),
    [
        ("2.15.0+cu132", "torch 2.15.0+cu132 is active already"),
        ("2.16.0+cu140", "torch 2.16.0+cu140 is active, and newer than what is planned"),
    ],
)
def test_who_has_it_or_a_newer_one_stays(torch: str, said: str) -> None:
    assert advice(using(torch)) == Advice("stay", (said,))


def test_a_long_training_waits_for_a_new_line_of_checkpoints_and_keeps_one_first() -> None:
    assert advice(using("2.14.1+cu130"), distributed=True) == Advice(
        "upgrade-at-checkpoint-boundary",
        (
            FITS,
            "distributed checkpoints saved by 2.15.0 cannot be read by 2.14.1+cu130",
            "upgrade when you next start a run",
            "no checkpoint that 2.14.1+cu130 reads is protected: see `torchenv help checkpoints keep`",
        ),
    )


@pytest.mark.parametrize(
    ("age", "allowed", "said"),
    [
        (
            timedelta(hours=3),
            timedelta(days=7),
            (f"{KEPT}, 3 hours old: {COSTS}",),
        ),
        (
            timedelta(days=9, hours=5),
            timedelta(days=7),
            (
                f"{KEPT}, 9 days old: {COSTS}",
                "the profile wants one no older than 7 days: protect a newer one first",
            ),
        ),
    ],
)
def test_what_is_kept_says_what_a_step_back_would_cost(
    age: timedelta, allowed: timedelta, said: tuple[str, ...]
) -> None:
    known = Known(lifeboat=Lifeboat("runs/a/step-100", age), oldest_lifeboat=allowed)
    assert advice(using("2.14.1+cu130"), known, distributed=True).reasons[3:] == said


def test_code_that_the_release_breaks_is_mended_first() -> None:
    assert advice(using("2.14.1+cu130"), Known(findings={"error": 1, "warning": 4})) == Advice(
        "stay", (FITS, "the audit found 1 error: fix this code first")
    )


def test_code_that_may_break_is_mentioned() -> None:
    found = advice(using("2.14.1+cu130"), Known(findings={"warning": 4, "note": 9}))
    assert found.verdict == "upgrade"
    assert found.reasons[1:] == ("the audit found 4 warnings: read them before a long run",)


def test_advice_for_another_machine_does_not_call_it_this_one() -> None:
    ask = Question(host=recorded("cpu-only-linux"), wish=Wish(version="2.15"), catalogue=CATALOGUE)
    assert "suits this machine" in resolve(ask).advice.reasons[0]
    assert "suits that machine" in resolve(replace(ask, is_elsewhere=True)).advice.reasons[0]
