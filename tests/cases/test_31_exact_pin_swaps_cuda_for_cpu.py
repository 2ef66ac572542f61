"""A package that pins an older torch stops the plan, with both sides named; nothing is swapped later."""

from __future__ import annotations

from tests.support.terminal import Terminal


def test_the_pair_that_does_not_fit_is_named_before_anything_is_built(terminal: Terminal) -> None:
    profile = 'schema = 1\n[packages]\nrequirements = ["xformers"]\n'
    (terminal.cwd / "torchenv.toml").write_text(profile, "utf-8")
    ended = terminal.create()
    assert ended.code == 3
    assert "xformers==0.0.40 wants torch==2.14.1, and the plan has torch==2.15.0+cpu" in ended.err
    assert terminal.built() == []


def test_a_constraint_file_comes_with_the_environment(terminal: Terminal) -> None:
    ended = terminal.create()
    assert ended.code == 0
    (environment,) = (terminal.workspace / "envs").iterdir()
    assert "torch==2.15.0+cpu" in (environment / "constraints.txt").read_text("utf-8")
    assert str(environment / "constraints.txt") in ended.out


def test_a_torch_that_was_swapped_by_hand_is_drift_that_status_names(terminal: Terminal) -> None:
    assert terminal.create().code == 0
    (environment,) = (terminal.workspace / "envs").iterdir()
    (site,) = environment.glob("lib/python*/site-packages")
    (version,) = site.glob("torch/version.py")
    version.write_text("__version__ = '2.14.1'\n", "utf-8")
    problems = terminal.type("status", "--json").json["problems"]
    assert "drift: torch 2.15.0+cpu -> 2.14.1" in [problem["message"] for problem in problems]
