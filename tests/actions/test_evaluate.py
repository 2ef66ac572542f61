"""`evaluate` runs the same commands in two environments and judges their metrics by the profile."""

from __future__ import annotations

import json
import math
import os
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.workshop import NOW, PYTHON

from torchenv.actions.evaluate import Comparison, Evaluated, evaluate, judge_metric, judge_runs, read_metrics
from torchenv.actions.ports import Ports
from torchenv.environment.base_python import BasePython
from torchenv.errors import InputError, ToolFailed
from torchenv.index.http import Network
from torchenv.index.pages import fetcher
from torchenv.installers.uv import Uv
from torchenv.profile.model import Evaluation, Metric
from torchenv.render.proofs import describe_evaluation, encode_evaluation
from torchenv.system.process import Command, Completed, Programs
from torchenv.workspace.records import Environment, Proof, State
from torchenv.workspace.store import Store

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the made-up environments are laid out as on Unix")

LOSS = {"loss": Metric(better="lower", relative=0.01)}

# Each environment has a module `model` that gives what it computes there.
PRINTS = ("python", "-c", "import json, model; print('epoch 1'); print(json.dumps(model.METRICS))")
WRITE = "pathlib.Path(os.environ['TORCHENV_METRICS']).write_text(json.dumps(model.METRICS))"
WRITES = ("python", "-c", f"import json, model, os, pathlib; {WRITE}; print('done')")

Evaluates = Callable[..., Evaluated]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "workspace")


@pytest.fixture
def evaluates(store: Store) -> Evaluates:
    """Evaluate two environments whose model gives `old` and `new`."""

    def run(old: Any, new: Any, *commands: tuple[str, ...], **more: Any) -> Evaluated:
        programs = Programs({"PATH": os.environ["PATH"]})
        ports = Ports(
            store=store,
            installer=Uv(programs, program=Path("uv")),
            run=programs,
            fetch=fetcher(Network()),
            say=lambda _: None,
            now=lambda: NOW,
            system="linux",
        )
        comparison = Comparison(
            old=_environment(store, "2.14.1", old),
            new=_environment(store, "2.15.0", new),
            evaluation=Evaluation(**{"commands": commands or (PRINTS,), "metrics": LOSS, **more}),
            directory=store.root.parent,
            environ={"PATH": os.environ["PATH"]},
            node="node7",
        )
        return evaluate(comparison, ports)

    return run


def _environment(store: Store, torch: str, metrics: Any) -> Environment:
    with store.hold("a test"):
        python = BasePython(PYTHON, sys.executable)
        manifest, new = store.read().begin(
            torch, within=store.environments, python=python, at=NOW, torch=torch
        )
        venv.create(new.path, symlinks=True)
        (site,) = Path(new.path).glob("lib/python3*/site-packages")
        (site / "model.py").write_text(f"nan = float('nan')\ninf = float('inf')\nMETRICS = {metrics!r}\n")
        manifest, ready = manifest.commit(new)
        store.write(manifest)
    return ready


@pytest.mark.parametrize("command", [PRINTS, WRITES])
def test_an_honest_change_passes_and_a_planted_one_is_caught(
    evaluates: Evaluates, command: tuple[str, ...]
) -> None:
    honest = evaluates({"loss": 0.5}, {"loss": 0.504}, command)
    planted = evaluates({"loss": 0.5}, {"loss": 0.51}, command)
    assert (honest.has_passed, [metric.verdict for metric in honest.metrics]) == (True, ["within tolerance"])
    assert (planted.has_passed, [metric.verdict for metric in planted.metrics]) == (False, ["worse"])


def test_the_table_sets_old_and_new_side_by_side(evaluates: Evaluates, store: Store) -> None:
    metrics = {**LOSS, "accuracy": Metric(better="higher", relative=0.0)}
    evaluated = evaluates({"loss": 0.5, "accuracy": 0.75}, {"loss": 0.5125, "accuracy": 0.8}, metrics=metrics)
    logs = store.root / "logs"
    assert describe_evaluation(evaluated) == (
        "metric    old (1)  new (2)  difference  allowed  verdict\n"
        "loss      0.5      0.5125   +0.0125     0.005    worse\n"
        "accuracy  0.75     0.8      +0.05       0        better\n"
        "environment 2 (2.15.0) is outside the profile's tolerances, compared with environment 1 (2.14.1)\n"
        f"logs: {logs}/1/evaluate-20261130T080000Z.txt and {logs}/2/evaluate-20261130T080000Z.txt"
    )
    assert "epoch 1" in (logs / "2" / "evaluate-20261130T080000Z.txt").read_text("utf-8")


def test_the_outcome_is_noted_and_decides_nothing_about_the_environment(
    evaluates: Evaluates, store: Store
) -> None:
    evaluates({"loss": 0.5}, {"loss": 0.6})
    after = store.read().number(2)
    assert after.state is State.READY
    assert after.proofs == (
        Proof(
            at=NOW, passed=False, what="evaluate against 1", host="node7", said=("loss: 0.5 to 0.6, worse",)
        ),
    )


def test_what_is_missing_or_no_number_fails_by_name(evaluates: Evaluates) -> None:
    metrics = {name: Metric(better="lower", relative=0.5) for name in ("gone", "nan", "inf", "word")}
    evaluated = evaluates(
        {"gone": 1, "nan": 1.0, "inf": math.inf, "word": "low"},
        {"nan": math.nan, "inf": 1.0, "word": "low"},
        metrics=metrics,
    )
    assert not evaluated.has_passed
    assert {metric.name: metric.verdict for metric in evaluated.metrics} == {
        "gone": "the new value is missing",
        "nan": "the new value is nan",
        "inf": "the old value is inf",
        "word": 'the old value is not a number: "low"',
    }
    document = json.dumps(encode_evaluation(evaluated), allow_nan=False)
    assert json.loads(document)["metrics"][1]["new"] == "nan"


def test_a_value_that_holds_nan_deep_inside_is_still_json(evaluates: Evaluates) -> None:
    evaluated = evaluates({"loss": {"by step": [math.nan]}}, {"loss": 1})
    document = json.loads(json.dumps(encode_evaluation(evaluated), allow_nan=False))
    assert document["metrics"][0]["old"] == {"by step": ["nan"]}


def test_a_number_longer_than_python_reads_is_a_missing_metric(evaluates: Evaluates) -> None:
    huge = ("python", "-c", "print('{\"loss\": ' + '1' * 5000 + '}')")
    evaluated = evaluates({}, {}, huge)
    assert [metric.verdict for metric in evaluated.metrics] == ["the old value is missing"]


def test_output_without_metrics_is_a_missing_metric(evaluates: Evaluates) -> None:
    evaluated = evaluates({}, {}, ("python", "-c", "print('loss 0.5')"))
    assert [metric.verdict for metric in evaluated.metrics] == ["the old value is missing"]


def test_several_commands_give_their_metrics_together(evaluates: Evaluates) -> None:
    metrics = {**LOSS, "speed": Metric(better="higher", relative=0.1)}
    prepares = ("python", "-c", "print('data is ready')")
    more = ("python", "-c", "print('{\"speed\": 100}')")
    evaluated = evaluates({"loss": 1}, {"loss": 1}, prepares, PRINTS, more, metrics=metrics)
    assert [(metric.name, metric.verdict) for metric in evaluated.metrics] == [
        ("loss", "same"),
        ("speed", "same"),
    ]


def test_a_command_that_fails_in_the_new_environment_is_named_with_it(evaluates: Evaluates) -> None:
    fails = ("python", "-c", "import model; assert 'loss' in model.METRICS, 'no loss'")
    evaluated = evaluates({"loss": 0.5}, {}, fails, PRINTS)
    command = " ".join(fails)
    assert not evaluated.has_passed
    assert evaluated.problems == (
        f"in environment 2 (2.15.0): `{command}` failed: AssertionError: no loss (code 1)",
    )
    assert evaluated.metrics == ()


def test_a_command_that_takes_too_long_fails(evaluates: Evaluates) -> None:
    evaluated = evaluates({}, {}, ("python", "-c", "import time; time.sleep(600)"), timeout=0.5)
    assert evaluated.problems[0].endswith("failed: it was stopped after 0.5 s")


def test_a_command_that_is_not_there_cannot_start(evaluates: Evaluates) -> None:
    with pytest.raises(ToolFailed, match=r"could not start no-such-trainer in environment 1 \(2.14.1\)"):
        evaluates({}, {}, ("no-such-trainer",))


@pytest.mark.parametrize("missing", ["commands", "metrics"])
def test_a_profile_that_measures_nothing_is_refused(evaluates: Evaluates, missing: str) -> None:
    with pytest.raises(InputError) as raised:
        evaluates({}, {}, **{missing: ()})
    assert str(raised.value) == f"the profile has no [evaluation] {missing}"


@pytest.mark.parametrize(
    ("better", "tolerance", "change", "verdict"),
    [
        ("lower", 0.01, (1.0, 1.01), "within tolerance"),
        ("lower", 0.01, (1.0, 1.0101), "worse"),
        ("lower", 0.0, (1.0, 0.2), "better"),
        ("lower", 0.1, (-1.0, -0.95), "within tolerance"),
        ("lower", 0.1, (-1.0, -0.85), "worse"),
        ("higher", 0.1, (100, 90), "within tolerance"),
        ("higher", 0.1, (100, 89), "worse"),
        ("higher", 0.0, (100, 101), "better"),
        ("equal", 0.0, (7, 7), "same"),
        ("equal", 0.0, (7, 8), "differs"),
        ("equal", 0.2, (10, 8), "within tolerance"),
        ("lower", 0.5, (0, 0.001), "worse"),
        ("lower", 0.5, (0, 0), "same"),
        ("lower", 0.5, (True, 0), "the old value is not a number: true"),
        ("lower", 0.5, (1, 10**400), "the new value is too large"),
    ],
)
def test_a_difference_is_judged_by_its_direction_and_its_share_of_the_old_value(
    better: str, tolerance: float, change: tuple[Any, Any], verdict: str
) -> None:
    result = judge_metric("it", Metric(better=better, relative=tolerance), *change)
    assert result.verdict == verdict
    assert result.passed is (verdict in {"same", "better", "within tolerance"})


def test_an_absolute_tolerance_serves_an_old_value_of_zero() -> None:
    metric = Metric(better="lower", relative=0.5, absolute=0.001)
    assert judge_metric("it", metric, 0.0, 0.0005).verdict == "within tolerance"
    assert judge_metric("it", metric, 0.0, 0.002).verdict == "worse"
    # The larger of both counts.
    assert judge_metric("it", metric, 1.0, 1.4).verdict == "within tolerance"


def test_what_differs_between_runs_of_one_environment_is_noisy_and_not_worse() -> None:
    metric = Metric(better="lower", relative=0.01)
    noisy = judge_runs("it", metric, [0.4, 0.5, 0.6], [0.55, 0.5, 0.6])
    assert (noisy.old, noisy.new, noisy.verdict, noisy.passed) == (0.5, 0.55, "noisy", True)
    assert noisy.spread == pytest.approx(0.2)
    worse = judge_runs("it", metric, [0.5, 0.5, 0.5], [0.6, 0.6, 0.61])
    assert (worse.verdict, worse.passed) == ("worse", False)
    assert judge_runs("it", metric, [0.5, None], [0.5, 0.5]).verdict == "the old value is missing"


def test_commands_run_as_often_as_the_profile_says_and_the_spread_is_shown(evaluates: Evaluates) -> None:
    evaluated = evaluates({"loss": 0.5}, {"loss": 0.5}, repeat=3)
    assert [len(side.runs) for side in (evaluated.old, evaluated.new)] == [3, 3]
    assert describe_evaluation(evaluated).splitlines()[:2] == [
        "metric  old (1)  new (2)  difference  allowed  verdict  spread",
        "loss    0.5      0.5      +0          0.005    same     0",
    ]


@pytest.mark.parametrize(
    "text",
    [
        '{"loss": 0.5}',
        'epoch 1\n{"loss": 0.5}\ndone in 3 s\n',
        '{"loss": 9}\n{\n  "loss": 0.5,\n  "by": {\n    "step": [1]\n  }\n}\n',
        '{"loss": 0.5}\n{not json}\n',
    ],
)
def test_the_last_json_object_counts_pretty_printed_or_followed_by_a_line(text: str) -> None:
    assert read_metrics(text)["loss"] == 0.5


def test_an_interrupted_evaluation_goes_on_with_what_was_finished(store: Store) -> None:
    programs = Programs({"PATH": os.environ["PATH"]})
    started: list[str] = []
    stops = [4]

    def run(command: Command, *, timeout: float | None = None) -> Completed:
        started.append(command.env["VIRTUAL_ENV"])
        if len(started) in stops:
            raise KeyboardInterrupt
        return programs(command, timeout=timeout)

    ports = Ports(
        store=store,
        installer=Uv(run, program=Path("uv")),
        run=run,
        fetch=fetcher(Network()),
        say=lambda _: None,
        now=lambda: NOW,
        system="linux",
    )
    comparison = Comparison(
        old=_environment(store, "2.14.1", {"loss": 0.5}),
        new=_environment(store, "2.15.0", {"loss": 0.5}),
        evaluation=Evaluation(commands=(PRINTS,), metrics=LOSS, repeat=2),
        directory=store.root.parent,
        environ={"PATH": os.environ["PATH"]},
        node="node7",
    )
    with pytest.raises(KeyboardInterrupt):
        evaluate(comparison, ports)
    assert evaluate(comparison, ports).has_passed
    old, new = comparison.old.path, comparison.new.path
    # Two of the old and one of the new were finished; the one that was stopped is run again, and no other.
    assert started == [old, old, new, new, new]
    # What is finished starts from the beginning.
    evaluate(comparison, ports)
    assert started[5:] == [old, old, new, new]


def test_an_interrupted_evaluation_begins_anew_once_its_program_was_changed(
    evaluates: Evaluates, store: Store
) -> None:
    program = store.root.parent / "measure.py"
    program.write_text("raise SystemExit('late') if __import__('torch_late') else 0\n")
    text = "import json, model\nprint(json.dumps({'loss': SCALE * model.METRICS['loss']}))\n"
    program.write_text(text.replace("SCALE", "1"))
    stops = "import os, sys\nif '2.15' in sys.prefix: os.kill(os.getppid(), 2); import time; time.sleep(9)\n"
    program.write_text(stops + text.replace("SCALE", "1"))
    with pytest.raises(KeyboardInterrupt):
        evaluates({"loss": 0.5}, {"loss": 0.5}, ("python", "measure.py"))
    program.write_text(text.replace("SCALE", "2"))
    assert evaluates({"loss": 0.5}, {"loss": 0.5}, ("python", "measure.py")).old.runs == ({"loss": 1.0},)
