"""Files that mean harm run nothing, take no more memory than they may, and end in a verdict."""

from __future__ import annotations

import ast
import struct
import tracemalloc
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.checkpoints.support import COMMAND, MemoryTree, archive, call, call4

import torchenv.checkpoints
from torchenv.checkpoints import inspect
from torchenv.checkpoints.formats.inert import Damaged
from torchenv.checkpoints.formats.pickles import walk
from torchenv.checkpoints.values import Checkpoint

MIB = 1 << 20


@pytest.fixture(autouse=True)
def nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # A canary would make its file in the working directory.
    monkeypatch.chdir(tmp_path)
    yield
    assert not Path("CANARY_UNPICKLED").exists()


def seen(files: dict[str, bytes]) -> Checkpoint:
    checkpoint = inspect(MemoryTree(files))
    assert checkpoint is not None
    return checkpoint


def test_no_module_here_imports_what_could_run_a_pickle() -> None:
    (package,) = torchenv.checkpoints.__path__
    for path in Path(package).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [name.name for name in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            tops = {name.partition(".")[0] for name in names}
            assert not tops & {"pickle", "_pickle", "torch", "marshal", "shelve", "copyreg"}, path


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (call("os", "system", COMMAND), "os.system"),
        (call("torch.utils.collect_env", "run", COMMAND), "torch.utils.collect_env.run"),
        (
            call4("torch.library", "torch.utils.collect_env.run", COMMAND),
            "torch.library.torch.utils.collect_env.run",
        ),
        (call4("builtins", "exec", COMMAND), "builtins.exec"),
    ],
)
@pytest.mark.parametrize("form", ["canary.pt", ".metadata", "canary.pkl"])
def test_names_that_can_run_code_are_told_and_nothing_is_opened(data: bytes, name: str, form: str) -> None:
    # Case 35: helpers in trusted packages, and dotted walks through innocent modules.
    checkpoint = seen({form: archive(data) if form == "canary.pt" else data})

    message = "it would import names that no release writes, which could run code: "
    assert f"{message}{name}; not opened" in [note.message for note in checkpoint.problems]
    assert checkpoint.foreign == (name,)
    assert checkpoint.reader.reads("2.15.0") is None
    written = str(checkpoint.as_json())
    assert "safe_globals" not in written
    assert "is safe" not in written


def test_names_before_the_damage_are_told_as_well() -> None:
    checkpoint = seen({".metadata": call("os", "system", COMMAND)[:-3]})

    assert checkpoint.foreign == ("os.system",)
    assert checkpoint.state == "corrupt"


def hostile(n: int) -> dict[str, bytes]:
    """Make pickles of about `n` bytes that want to harm."""
    return {
        "memo": b"\x80\x02Nr\xff\xff\xff\x7f.",
        "memo text": b"Np2147483647\n.",
        "nesting": b"\x80\x04" + b"(" * n,
        "lists in lists": b"\x80\x04" + b"]" * (n // 2) + b"a" * (n // 2 - 1) + b".",
        "tuples in tuples": b"\x80\x04)" + b"\x85" * n + b".",
        "sets": b"\x80\x04(" + b"\x8f" * n + b"t.",
        "dicts": b"\x80\x04(" + b"}" * n + b"t.",
        "memoised": b"\x80\x04N" + b"\x94" * n + b".",
        "nothing": b"\x80\x04(" + b"N" * n + b"t.",
        "same again": b"\x80\x04]" + b"2" * n + b".",
        "twice as much each time": b"\x80\x04)" + b"2\x86" * (n // 2) + b".",
        "short strings": b"\x80\x04(" + b"\x8c\x02ab" * (n // 4) + b"t.",
        "wide characters": b"\x80\x04\x8d" + struct.pack("<Q", n) + b"a" * (n - 4) + "🔥".encode() + b".",
        "numbers": b"\x80\x04(" + b"J\0\0\1\0" * (n // 5) + b"t.",
        "a long number": b"\x80\x04\x8b" + struct.pack("<I", n) + b"\x01" * n + b".",
        "a number of digits": b"L" + b"9" * n + b"L\n.",
        "a length of 2**63": b"\x80\x04\x8e" + struct.pack("<Q", 1 << 63) + b"x.",
        "a bytearray of 2**40": b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b"x.",
        "a frame of 2**62": b"\x80\x04\x95" + struct.pack("<Q", 1 << 62) + b"N.",
        "calls": b"\x80\x02cos\nsystem\n" + b")R" * (n // 2) + b".",
        "names": b"\x80\x02" + b"cos\nsystem\n0" * (n // 12) + b"N.",
        "frames": b"\x80\x04" + (b"\x95" + bytes(8)) * (n // 9) + b"N.",
        "items": b"\x80\x04}(" + b"NN" * (n // 2) + b"u.",
        "underflow": b"\x80\x04R.",
        "nothing at all": b"",
        "no stop": b"\x80\x04N",
        "unknown opcode": b"\x80\x04\xff.",
        "an instance": b"(S'touch CANARY_UNPICKLED'\nios\nsystem\n.",
        "an object": b"(cos\nsystem\nU\x16touch CANARY_UNPICKLEDo.",
        "a state": b"\x80\x02cos\nsystem\n}b.",
        "not text": b"\x80\x04\x8c\x01\xff.",
    }


SMALL, LARGE = hostile(4_000), hostile(400_000)


@pytest.mark.parametrize("form", [".metadata", "saved.pt", "bare.pkl"])
@pytest.mark.parametrize("name", SMALL)
def test_a_hostile_pickle_ends_in_a_verdict(name: str, form: str) -> None:
    data = SMALL[name]

    checkpoint = seen({form: archive(data) if form == "saved.pt" else data})

    assert checkpoint.reader.reads("2.15.0") is not True or not checkpoint.foreign
    if form == ".metadata":
        assert checkpoint.state == "corrupt"


@pytest.mark.parametrize("name", LARGE)
def test_a_hostile_pickle_takes_no_more_memory_than_it_may(name: str) -> None:
    data = LARGE[name]
    tracemalloc.start()
    try:
        seen({"bare.pkl": data})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak <= 20 * len(data) + 64 * MIB


def test_a_zip_bomb_is_not_opened() -> None:
    bomb = archive(bytes(100 * MIB), zipfile.ZIP_DEFLATED)
    tracemalloc.start()
    try:
        checkpoint = seen({"bomb.pt": bomb})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert [note.code for note in checkpoint.problems] == ["archive-bomb"]
    assert checkpoint.state == "corrupt"
    assert peak <= 20 * len(bomb) + 64 * MIB


def test_a_header_of_containers_is_not_decoded() -> None:
    header = b'{"w":[' + b"[]," * MIB + b"[]]}"
    data = struct.pack("<Q", len(header)) + header

    problem = seen({"w.safetensors": data}).problems[0]
    assert problem.message == "w.safetensors: it is not what safetensors writes"


def test_names_in_messages_cannot_act_on_a_terminal() -> None:
    checkpoint = seen({"ck.pt": archive(call4("os", "\x1b[2Jsystem", "x"))})

    assert all(note.message.isprintable() for note in checkpoint.problems)


def test_the_memo_number_that_wants_gigabytes_is_named() -> None:
    with pytest.raises(Damaged) as raised:
        walk(SMALL["memo"])

    assert raised.value.code == "pickle-memo-index"
    assert raised.value.message == "the pickle sets memo 2147483647 where 0 are set"
