"""A verdict is what a release does by default: names to allow, other packages, an archive's own fields."""

from __future__ import annotations

import io
import zipfile

import pytest
from tests.checkpoints.scan.test_scan import environment
from tests.checkpoints.support import MemoryTree, archive, call

from torchenv.checkpoints import inspect
from torchenv.checkpoints.scan.runs import verdict
from torchenv.checkpoints.values import Reader, runs_code


def reader_of(data: bytes) -> Reader:
    checkpoint = inspect(MemoryTree({"a.pt": data}))
    assert checkpoint is not None
    return checkpoint.reader


def with_fields(version: str, byteorder: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        made.writestr("archive/data.pkl", b"\x80\x02}.")
        made.writestr("archive/byteorder", byteorder)
        made.writestr("archive/version", version)
    return file.getvalue()


@pytest.mark.parametrize(
    ("torch", "expected"),
    [("2.5.1", "readable"), ("2.6.0", "readable-with-code"), ("2.15.0", "readable-with-code")],
)
def test_a_numpy_value_is_refused_by_default_since_the_default_is_restricted(
    torch: str, expected: str
) -> None:
    reader = reader_of(archive(call("numpy.core.multiarray", "_reconstruct", "x")))

    assert verdict(reader, environment(1, torch), "linux") == expected
    assert reader.as_json()["weights_only"] is False
    assert reader.as_json()["allow"] == ["numpy.core.multiarray._reconstruct"]


@pytest.mark.parametrize(("torch", "expected"), [("2.14.1", "readable"), ("2.15.0", "readable-with-code")])
def test_a_nested_tensor_is_refused_by_default_from_2_15_on(torch: str, expected: str) -> None:
    reader = reader_of(archive(call("torch._utils", "_rebuild_nested_tensor", "x")))

    assert verdict(reader, environment(1, torch), "linux") == expected


def test_a_class_of_the_users_own_is_not_known() -> None:
    reader = reader_of(archive(call("my_project.config", "Config", "x")))

    assert verdict(reader, environment(1, "2.15.0"), "linux") == "unknown"
    assert reader.as_json()["weights_only"] is None


@pytest.mark.parametrize(
    ("version", "byteorder", "code"),
    [
        ("1\n", "little", None), ("10\n", "big", None), ("0\n", "little", "archive-version"),
        ("99\n", "little", "archive-version"), ("x", "little", "archive-version"),
        ("3\n", "middle", "byteorder"),
    ],
)  # fmt: skip
def test_the_fields_of_an_archive_are_those_that_torch_takes(
    version: str, byteorder: str, code: str | None
) -> None:
    reader = reader_of(with_fields(version, byteorder))

    assert [note.code for note in reader.because] == ([code] if code else [])
    assert verdict(reader, environment(1, "2.15.0"), "linux") == ("unreadable" if code else "readable")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("os.system", True),
        ("torch.utils.collect_env.run", True),
        ("builtins.exec", True),
        ("__main__.Config", False),
    ],
)
def test_functions_of_python_and_torch_are_told_from_classes_of_others(name: str, expected: bool) -> None:  # noqa: FBT001
    assert runs_code(name) is expected
