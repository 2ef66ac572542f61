"""A verdict is what a release does by default: names to allow, other packages, an archive's own fields."""

from __future__ import annotations

import io
import zipfile

import pytest
from packaging.specifiers import SpecifierSet
from tests.checkpoints.scan.test_scan import environment
from tests.checkpoints.support import MemoryTree, archive, call

from torchenv.checkpoints import inspect
from torchenv.checkpoints.scan.index import ScanIndex
from torchenv.checkpoints.scan.runs import Judge, verdict
from torchenv.checkpoints.values import Range, Reader, runs_code


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


@pytest.mark.parametrize(
    ("module", "name", "first"),
    [
        ("collections", "Counter", "2.4"),
        ("builtins", "complex", "2.6"),
        ("torch._utils", "_rebuild_parameter_with_state", "2.4"),
        ("torch", "int4", "2.7"),
        ("torch._utils", "_rebuild_device_tensor_from_cpu_tensor", "2.6"),
        ("torch.cuda", "FloatStorage", "2.2"),
    ],
)
def test_a_name_that_torch_opens_by_default_is_no_foreign_one(module: str, name: str, first: str) -> None:
    checkpoint = inspect(MemoryTree({"a.pt": archive(call(module, name, "x"))}))

    assert checkpoint is not None
    assert (checkpoint.foreign, checkpoint.reader.weights_only) == ((), Range(oldest=first))
    assert verdict(checkpoint.reader, environment(1, "2.15.0"), "linux") == "readable"


def test_plain_bytes_are_no_numpy() -> None:
    reader = reader_of(archive(call("_codecs", "encode", "x")))

    assert (reader.packages, reader.allow) == ((), ())
    assert verdict(reader, environment(1, "2.15.0"), "linux") == "readable"


def test_a_dtensor_is_opened_once_its_module_is_imported() -> None:
    reader = reader_of(archive(call("torch.distributed.tensor", "DTensor", "x")))

    assert verdict(reader, environment(1, "2.15.0"), "linux") == "readable-with-code"
    assert verdict(reader, environment(1, "2.5.1"), "linux") == "readable"
    assert reader.as_json()["imports"] == ["torch.distributed.tensor"]


@pytest.mark.parametrize(
    ("module", "name", "package", "lacks", "has"),
    [
        ("numpy._core.multiarray", "_reconstruct", "numpy", "1.25.2", "1.26.4"),
        ("pandas._libs.internals", "_unpickle_block", "pandas", "1.3.0", "1.4.0"),
        ("scipy.sparse._csr", "csr_matrix", "scipy", "1.7.3", "1.8.0"),
        ("transformers.trainer_utils", "SaveStrategy", "transformers", "4.46.3", "4.47.1"),
        ("transformers.trainer_pt_utils", "AcceleratorConfig", "transformers", "4.37.2", "4.38.2"),
        ("lightning.fabric.utilities.data", "AttributeDict", "lightning", "2.1.0", "2.2.0"),
    ],
)
def test_a_class_of_another_package_asks_for_a_version_that_has_it(
    module: str, name: str, package: str, lacks: str, has: str
) -> None:
    index = ScanIndex()
    checkpoint = inspect(MemoryTree({"a.pt": archive(call(module, name, "x"))}))
    assert checkpoint is not None
    found = index.add(checkpoint, "a.pt")
    new = environment(1, "2.15.0")

    def judged(version: str | None) -> str:
        return Judge(index, [new], "linux", lambda *_: version).of(found, new)

    needed = dict(checkpoint.reader.packages)[package]
    assert (lacks in SpecifierSet(needed), has in SpecifierSet(needed)) == (False, True)
    assert [judged(version) for version in (lacks, has, "", None)] == [
        "unreadable", "readable-with-code", "unreadable", "unknown",
    ]  # fmt: skip
    assert (checkpoint.foreign, checkpoint.reader.allow) == ((), (f"{module}.{name}",))


def test_a_function_of_a_package_is_no_class_of_it() -> None:
    checkpoint = inspect(MemoryTree({"a.pt": archive(call("pandas", "read_pickle", "x"))}))

    assert checkpoint is not None
    assert (checkpoint.foreign, checkpoint.reader.packages) == (("pandas.read_pickle",), (("pandas", ""),))
    assert verdict(checkpoint.reader, environment(1, "2.15.0"), "linux") == "unknown"


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
