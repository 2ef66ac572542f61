"""Files that would run a command if they were unpickled, by names in packages that people trust."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from tests.checkpoints.support import archive, call
from tests.support.checkpoints import contents
from tests.support.terminal import Terminal

TOUCH = "touch CANARY_UNPICKLED"


def call_by_stack(module: str, name: str, argument: str) -> bytes:
    """Write a pickle of protocol 4, which takes the names of what it calls from the stack."""
    words = b"".join(b"\x8c" + struct.pack("B", len(word)) + word.encode() for word in (module, name))
    return b"\x80\x04" + words + b"\x93\x8c" + struct.pack("B", len(argument)) + argument.encode() + b"\x85R."


CANARIES = {
    "canary_os.pt": (archive(call("os", "system", TOUCH)), "os.system"),
    "canary_torch_namespace.pt": (
        archive(call("torch.utils.collect_env", "run", TOUCH)),
        "torch.utils.collect_env.run",
    ),
    "canary_dotted.pt": (
        archive(call_by_stack("torch.library", "torch.utils.collect_env.run", TOUCH)),
        "torch.utils.collect_env.run",
    ),
    "canary_exec_protocol4.pt": (
        archive(call_by_stack("builtins", "exec", "open('CANARY_UNPICKLED','w')")),
        "builtins.exec",
    ),
    "dcp_canary/.metadata": (call("os", "system", TOUCH), "os.system"),
}


@pytest.mark.parametrize("name", CANARIES)
def test_it_is_not_opened_and_its_names_are_listed_without_the_advice_to_allow_them(
    tmp_path: Path, name: str
) -> None:
    terminal = Terminal.within(tmp_path)
    data, foreign = CANARIES[name]
    file = terminal.cwd / "runs" / name
    file.parent.mkdir(parents=True)
    file.write_bytes(data)
    before = contents(terminal.cwd / "runs")
    for action in ("scan", "show"):
        ended = terminal.type("checkpoints", action, "runs")
        assert ended.code == 1
        assert foreign in ended.out
        assert "not opened" in ended.out
        assert "safe_globals" not in ended.out + ended.err
    assert not list(tmp_path.rglob("CANARY*"))
    assert contents(terminal.cwd / "runs") == before
