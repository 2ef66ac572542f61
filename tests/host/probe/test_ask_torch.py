"""What nothing else knows of a card is asked of the torch that is there, in a child of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from packaging.version import Version

from torchenv.host.model import (
    Capability,
    Host,
    Nvidia,
    NvidiaDevice,
    SeenEnvironment,
    Status,
    WrittenVersion,
)
from torchenv.host.probe.ask_torch import ask_torch, question
from torchenv.system.process import Command, Completed

CARD = "NVIDIA Graphics Device"
ANSWER = (
    'a warning of torch\n{"torch": "2.14.1", "devices": [{"index": 0, "name": "NVIDIA Graphics Device",'
    ' "compute_capability": "8.9", "gfx": null}]}\n'
)


class Answering:
    """Answers for the interpreters of some environments; the others fail."""

    def __init__(self, *known: Path) -> None:
        self.known = tuple(str(torch) for torch in known)
        self.asked: list[Command] = []

    def __call__(self, command: Command, *, timeout: float | None = None) -> Completed:
        assert timeout == 60.0
        self.asked.append(command)
        if command.argv[0].startswith(self.known):
            return Completed(command, 0, ANSWER, "")
        return Completed(command, 1, "", "ImportError: libcudart.so.12")


def environment(path: Path) -> Path:
    (path / "bin").mkdir(parents=True)
    (path / "bin" / "python").symlink_to("/usr/bin/python3")
    (path / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.12.1\n", "utf-8")
    return path


@pytest.fixture
def host(tmp_path: Path) -> Host:
    seen = (
        SeenEnvironment(path=str(environment(tmp_path / "beside")), torch=Version("2.13.0")),
        SeenEnvironment(path=str(environment(tmp_path / "active")), torch=Version("2.14.1"), active=True),
        SeenEnvironment(path=str(environment(tmp_path / "torchless"))),
        SeenEnvironment(path=str(tmp_path / "gone"), torch=Version("2.12.0")),
    )
    nvidia = Nvidia(
        status=Status.FOUND,
        driver=WrittenVersion("580.95.05"),
        devices=(NvidiaDevice(index=0, name=CARD),),
    )
    return Host(system="linux", machine="x86_64", nvidia=nvidia, environments=seen)


def test_the_active_environment_is_asked_first_and_its_answer_kept(host: Host, tmp_path: Path) -> None:
    run = Answering(tmp_path / "active", tmp_path / "beside")
    known = ask_torch(host, run)
    assert [device.compute_capability for device in known.nvidia.devices] == [Capability(8, 9)]
    assert run.asked == [question(str(tmp_path / "active" / "bin" / "python"))]
    assert [(item.source, item.outcome, item.text) for item in known.evidence] == [
        (f"torch in {tmp_path / 'active'}", "read", ANSWER.splitlines()[1])
    ]


def test_where_that_torch_says_nothing_another_is_asked(host: Host, tmp_path: Path) -> None:
    run = Answering(tmp_path / "beside")
    assert ask_torch(host, run).nvidia.devices[0].compute_capability == Capability(8, 9)
    assert [Path(command.argv[0]).parents[1].name for command in run.asked] == ["active", "beside"]


def test_where_no_torch_says_anything_unknown_stays_unknown(host: Host) -> None:
    assert ask_torch(host, Answering(Path("/nowhere"))) == host


def test_the_question_is_isolated_and_writes_no_byte_code() -> None:
    assert question("/env/bin/python").argv[:3] == ("/env/bin/python", "-I", "-B")


def test_a_capability_that_is_known_is_never_replaced(host: Host, tmp_path: Path) -> None:
    (device,) = host.nvidia.devices
    known = replace(device, compute_capability=Capability(12, 0))
    host = replace(host, nvidia=replace(host.nvidia, devices=(known,)))
    assert ask_torch(host, Answering(tmp_path / "active")) == host


def test_a_torch_that_finds_no_driver_says_why_a_card_cannot_be_read(host: Host) -> None:
    def fail(command: Command, *, timeout: float | None = None) -> Completed:
        return Completed(command, 1, "", "RuntimeError: Found no NVIDIA driver on your system.\n")

    told = ask_torch(host, fail).problems[-1]
    assert told.code == "torch-driver-missing"
    assert "install it, or start the container with its GPUs" in told.message
