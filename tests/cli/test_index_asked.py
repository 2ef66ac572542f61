"""`plan` asks the index, and what it prints is what `create` would do."""

from __future__ import annotations

import platform
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.support.index import Index
from tests.support.terminal import Terminal
from tests.support.wheels import Wheel
from tests.support.workshop import HOSTS

from torchenv.host.model import Host

pytestmark = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="the wheels are for Linux x86_64"
)

NOBODY = "http://127.0.0.1:9"
DECISION = (
    "outcome",
    "torch",
    "backend",
    "index",
    "python",
    "requirements",
    "environment",
    "warnings",
    "download",
)
CHOICE = ("2.15", "--backend", "cpu", "--python", sys.executable)


def decisions(terminal: Terminal, *words: str | Path, **variables: str) -> tuple[Any, Any]:
    """Plan and create without building, and return what both decided, with the exit code."""
    found = []
    for command in (("plan",), ("create", "--dry-run")):
        ended = terminal.type(*command, *words, "--json", **variables)
        document = ended.json
        found.append((ended.code, {key: document.get(key, document) for key in DECISION}))
    return found[0], found[1]


def test_plan_and_create_decide_alike_with_the_index_there(terminal: Terminal, index: Index) -> None:
    planned, made = decisions(terminal, *CHOICE)
    assert planned == made
    assert (planned[0], planned[1]["index"]) == (0, index.backend("cpu"))
    assert index.asked_for("whl/cpu", "torch")


def test_plan_and_create_decide_alike_with_the_index_out_of_reach(terminal: Terminal) -> None:
    words = ("2.15", "--python", sys.executable)
    planned, made = decisions(terminal, *words, TORCHENV_TORCH_INDEX=f"{NOBODY}/whl")
    assert planned == made
    assert (planned[0], planned[1]["index"]) == (0, None)
    codes = [warning["code"] for warning in planned[1]["warnings"]]
    assert {"package-index", "index-unreachable"} <= set(codes)


def test_plan_and_create_decide_alike_where_the_index_lacks_the_wheel(
    terminal: Terminal, index: Index
) -> None:
    index.remove("whl/cpu", "torch")
    planned, made = decisions(terminal, *CHOICE)
    assert planned == made
    assert planned[0] != 0


RECORDED = sorted(path.stem for path in HOSTS.glob("*.json"))


@pytest.mark.parametrize("name", RECORDED)
def test_plan_and_create_decide_alike_for_every_recorded_host(
    terminal: Terminal, index: Index, name: str
) -> None:
    planned, made = whole_decisions(terminal, "2.15", "--host", HOSTS / f"{name}.json")
    assert planned == made
    assert index.requests == []


@pytest.mark.parametrize("name", RECORDED)
def test_plan_and_create_decide_alike_on_every_recorded_host(
    terminal: Terminal, index: Index, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    run_on(name, monkeypatch)
    usual = terminal.type("plan", "2.15", "--offline", "--json").json
    reachable, made = whole_decisions(terminal, "2.15")
    assert reachable == made
    if usual["index"] is not None:
        assert (reachable[0], reachable[1]["index"]) == (0, index.backend(usual["backend"]))

    away, made = whole_decisions(terminal, "2.15", TORCHENV_TORCH_INDEX=f"{NOBODY}/whl")
    assert away == made

    if usual["index"] is None:
        # A Mac takes the package index's build, and where nothing suits there is nothing to lack.
        return
    index.remove(f"whl/{usual['backend']}", "torch")
    index.forget()
    lacking, made = whole_decisions(terminal, "2.15")
    assert lacking == made
    assert index.requests != []
    taken = (lacking[1].get("torch"), lacking[1].get("backend"))
    assert taken != (usual["torch"], usual["backend"])

    for place in index.places():
        index.remove(place, "torch")
    nowhere, made = whole_decisions(terminal, "2.15")
    assert nowhere == made
    assert nowhere[0] in {3, 4}


def run_on(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a recorded host be the machine that the commands run on, so that they ask the index."""
    host = Host.from_json((HOSTS / f"{name}.json").read_text("utf-8"), name)
    monkeypatch.setattr("torchenv.host.probe.probe", lambda *_, **__: host)


def whole_decisions(terminal: Terminal, *words: str | Path, **variables: str) -> tuple[Any, Any]:
    """Plan and create without building, and return all that both said, with the exit code."""
    plan, create = (
        terminal.type(*command, *words, "--json", **variables)
        for command in (("plan",), ("create", "--dry-run"))
    )
    return (plan.code, plan.json), (create.code, create.json)


def test_a_hint_of_a_blocked_plan_names_no_release_that_the_index_lacks(
    terminal: Terminal, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_on("rtx-5090-driver-570", monkeypatch)
    # From the catalogue alone it is 2.13 on cu129; this index has nothing older than 2.14.
    offline = terminal.type("plan", "2.15", "--offline", "--json")
    older = "take torch 2.13.0 (cu129) with `torchenv create 2.13.0"
    assert offline.json["hint"].startswith(f"{older} --offline`")
    for command in (("plan",), ("create", "--dry-run")):
        blocked = terminal.type(*command, "2.15", "--json")
        assert blocked.code == 3
        assert "2.13" not in blocked.json["hint"]
        assert blocked.json["hint"].startswith("driver 580 or newer allows torch 2.15")
    assert index.asked_for("whl/cu129", "torch")

    index.add(
        "whl/cu129", Wheel(name="torch", version="2.13.0+cu129", tag="cp312-cp312-manylinux_2_28_x86_64")
    )
    blocked = terminal.type("plan", "2.15", "--json")
    assert blocked.json["hint"].startswith(f"{older}`")
    unasked = terminal.type("plan", "2.15", "--json", TORCHENV_TORCH_INDEX=f"{NOBODY}/whl")
    assert unasked.code == 3
    (said,) = [
        warning["message"] for warning in unasked.json["warnings"] if warning["code"] == "index-not-asked"
    ]
    assert said.startswith("could not check that the index has the build that the hint names: ")


def test_a_companion_that_only_a_file_of_the_profile_names_counts_in_a_plan(
    terminal: Terminal, index: Index
) -> None:
    (terminal.cwd / "torchenv.toml").write_text(
        'schema = 1\n[packages]\nfrom = ["requirements.txt"]\n', "utf-8"
    )
    (terminal.cwd / "requirements.txt").write_text("torchvision\nnumpy\n", "utf-8")
    planned, made = whole_decisions(terminal, *CHOICE)
    assert planned == made
    assert planned[1]["requirements"] == ["torch==2.15.0+cpu", "torchvision==0.29.2"]
    # What a file asks of torch and the plan does not have is refused by both.
    (terminal.cwd / "requirements.txt").write_text("torch<2.15\n", "utf-8")
    said = [terminal.type(*command, *CHOICE).error for command in (("plan",), ("create", "--dry-run"))]
    assert said[0] == said[1]
    assert said[0][0] == 3
    assert "requirements.txt:1 wants torch<2.15, and the plan has torch==2.15.0+cpu" in said[0][1]


def test_an_answer_is_believed_for_an_hour_and_offline_asks_nothing(terminal: Terminal, index: Index) -> None:
    assert terminal.create().code == 0
    assert terminal.type("plan", *CHOICE).code == 0
    index.forget()
    assert terminal.type("plan", *CHOICE).code == 0
    assert index.requests == []
    (terminal.workspace / "index-answers.json").unlink()
    assert terminal.type("plan", *CHOICE, "--offline").code == 0
    assert index.requests == []
    assert terminal.type("plan", *CHOICE).code == 0
    assert index.asked_for("whl/cpu", "torch")


def test_a_plan_says_how_much_is_to_be_fetched_and_what_is_cached(terminal: Terminal) -> None:
    host = HOSTS / "rtx-4090-driver-580.json"
    planned = terminal.type("plan", "2.15", "--host", host, "--json")
    assert planned.json["download"] == {"mib": 2861, "cached": False}
    assert " (about 2.8 GiB)" in terminal.type("plan", "2.15", "--host", host).out
    assert terminal.create().code == 0
    assert terminal.type("plan", *CHOICE, "--json").json["download"] == {"mib": None, "cached": True}
    assert " (cached)" in terminal.type("plan", *CHOICE).out


def test_a_stop_ends_a_plan_whose_page_never_comes(terminal: Terminal) -> None:
    asked, done = threading.Event(), threading.Event()

    def never(connection: socket.socket) -> None:
        with connection:
            connection.recv(1)
            asked.set()
            done.wait(60)

    with socket.create_server(("127.0.0.1", 0)) as server:
        silent = threading.Thread(target=lambda: never(server.accept()[0]))
        silent.start()
        root = f"http://127.0.0.1:{server.getsockname()[1]}/whl"
        process = subprocess.Popen(
            terminal.argv("create", *CHOICE, "--dry-run"),
            cwd=terminal.cwd,
            env={**terminal.environ, "TORCHENV_TORCH_INDEX": root},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert asked.wait(30)
        process.terminate()
        process.communicate(timeout=30)
        done.set()
        silent.join()
    # Without the stop it would have planned from the catalogue, and ended with 0.
    assert process.returncode == 130


def test_a_mirror_whose_pages_link_to_another_host_is_said(
    terminal: Terminal, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = index.answer

    def linking_elsewhere(path: str, accept: str) -> tuple[int, str, bytes]:
        status, kind, body = answer(path, accept)
        return status, kind, body.replace(b'href="/', b'href="http://files.example/')

    monkeypatch.setattr(index, "answer", linking_elsewhere)
    warnings = terminal.type("plan", *CHOICE, "--json").json["warnings"]
    message = f"the pages of {index.backend('cpu')} link to files on another host: files.example"
    assert {"code": "index-links-elsewhere", "message": message} in warnings


def test_the_page_of_a_captive_portal_is_said_as_what_it_is(
    terminal: Terminal, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    portal = b"<html><title>Guest Wi-Fi</title><form action='/login'>Log in</form></html>"
    monkeypatch.setattr(index, "answer", lambda *_: (200, "text/html", portal))
    code, said = terminal.create().error
    assert code == 4
    assert "answers with a web page that lists no files: it is no package index" in said
    assert "hint: check the address, and whether this network asks to log in first" in said


def test_a_catalogue_that_came_with_the_project_moves_no_index(terminal: Terminal, index: Index) -> None:
    terminal.workspace.mkdir()
    own = terminal.workspace / "catalogue.toml"
    own.write_text('schema = 1\n[index]\nroot = "http://evil.example/whl"\n', "utf-8")
    code, said = terminal.type("plan", "2.15", TORCHENV_TORCH_INDEX="").error
    assert code == 2
    assert "index.root moves PyTorch's index from " in said
    assert f"trust it by name: `--catalogue {own}`" in said
    planned = terminal.type(
        "plan", *CHOICE, "--catalogue", own, "--offline", "--json", TORCHENV_TORCH_INDEX=""
    )
    assert planned.json["index"] == "http://evil.example/whl/cpu"


def test_a_login_in_the_profile_is_refused_and_not_shown(terminal: Terminal) -> None:
    profile = 'schema = 1\n[index]\ntorch = "https://user:p@ss@mirror.example/whl"\n'
    (terminal.cwd / "torchenv.toml").write_text(profile, "utf-8")
    ended = terminal.type("plan", "2.15")
    assert ended.error == (
        2,
        (
            "error: torchenv.toml: index.torch: `https://mirror.example/whl` is written with a login\n"
            "hint: remove it from the address, then store it in ~/.netrc or in keyring\n"
        ),
    )


def test_a_plan_makes_no_workspace(terminal: Terminal) -> None:
    assert terminal.type("plan", *CHOICE).code == 0
    assert not terminal.workspace.exists()


def test_a_secret_in_a_variable_is_used_and_never_shown_or_written(terminal: Terminal, index: Index) -> None:
    index.login = ("u", "s3cr@t")
    root = index.root.replace("http://", "http://u:s3cr@t@")
    variables = {"TORCHENV_TORCH_INDEX": f"{root}/whl", "TORCHENV_PACKAGE_INDEX": f"{root}/simple"}
    planned = terminal.type("plan", *CHOICE, "--json", **variables)
    assert (planned.code, planned.json["index"]) == (0, index.backend("cpu"))
    made = terminal.create("--json", **variables)
    assert made.code == 0, made.err
    refused = terminal.type("plan", *CHOICE, **{**variables, "TORCHENV_TORCH_INDEX": f"{NOBODY}/whl"})
    written = [path for path in terminal.cwd.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert not any(b"s3cr" in path.read_bytes() for path in written)
    assert not any("s3cr" in ended.out + ended.err for ended in (planned, made, refused))
