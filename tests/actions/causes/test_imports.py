"""What is behind a failed import is told from the files of the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchenv.actions.causes.imports import explain_import_failure
from torchenv.catalogue import resources
from torchenv.environment.inspect import Installation, Layout

CURAND = (
    "torch no longer brings cuRAND from 2.15 on: add nvidia-curand to the profile's packages, and load it"
    " before the extension or give the extension an RPATH to it"
)


@pytest.fixture
def installation(tmp_path: Path) -> Installation:
    """torch 2.15.0 with cuDNN, and a torchaudio and a torchvision beside it."""
    for name, version, files in (
        ("nvidia_cudnn_cu13", "9.26.0.51", ("nvidia/cudnn/lib/libcudnn.so.9", "nvidia/cudnn/LICENSE")),
        ("torchaudio", "2.11.0", ("torchaudio/__init__.py",)),
        ("torchvision", "0.29.2", ("torchvision/__init__.py",)),
    ):
        info = tmp_path / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.4\nName: {name.replace('_', '-')}\nVersion: {version}\n"
        )
        (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))
        for file in files:
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / file).touch()
    return Installation(
        path=tmp_path, layout=Layout.VENV, site_packages=(tmp_path,), torch="2.15.0+cu132", python="3.12.7"
    )


@pytest.mark.parametrize(
    "message",
    [
        "ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory",
        "ValueError: libcudnn.so.*[0-9] not found in the system path ['/home/u/env/lib']",
    ],
)
def test_a_library_that_was_removed_is_named_with_the_package_that_brought_it(
    installation: Installation, message: str
) -> None:
    library = installation.path / "nvidia" / "cudnn" / "lib" / "libcudnn.so.9"
    library.unlink()
    assert explain_import_failure(message, "torch", installation, resources.catalogue()) == (
        f"{message} ({library} of nvidia-cudnn-cu13 9.26.0.51 is missing: build the environment again)"
    )


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        ("ImportError: libcurand.so.10: cannot open shared object file: No such file or directory", CURAND),
        ("ImportError: /x/fused.so: undefined symbol: curandCreateGenerator", CURAND),
        (
            "OSError: libGL.so.1: cannot open shared object file: No such file or directory",
            "no package in this environment brings libGL.so.1",
        ),
    ],
)
def test_a_library_that_nothing_brings_is_told_so(
    installation: Installation, message: str, cause: str
) -> None:
    assert (
        explain_import_failure(message, "it", installation, resources.catalogue()) == f"{message} ({cause})"
    )


def test_a_companion_of_another_release_is_named_with_the_right_one(installation: Installation) -> None:
    message = "RuntimeError: Detected that PyTorch and TorchAudio were compiled with different CUDA versions."
    assert explain_import_failure(message, "torchaudio", installation, resources.catalogue()) == (
        f"{message} (torchaudio 2.11.0 is installed beside torch 2.15.0, whose companion is 2.11.1)"
    )


@pytest.mark.parametrize(
    ("package", "message"),
    [
        ("torchvision", "RuntimeError: operator torchvision::nms does not exist"),
        ("lightning", "ModuleNotFoundError: No module named 'yaml'"),
        ("fused", "ImportError: /x/fused.so: undefined symbol: cublasCreate_v2"),
    ],
)
def test_what_nothing_is_known_of_is_left_as_it_was_said(
    installation: Installation, package: str, message: str
) -> None:
    assert explain_import_failure(message, package, installation, resources.catalogue()) == message
