"""uv resolves, locks and installs from the plan's indexes and from nowhere else."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.wheels import Wheel

from torchenv.environment.unshare import isolate
from torchenv.errors import InputError, NothingSuits, ToolFailed
from torchenv.installers import LockRequest, interpreter_in
from torchenv.installers.uv import Uv, uv_program
from torchenv.system.process import Command, Programs

if TYPE_CHECKING:
    from tests.support.index import Index

    from torchenv.lockfile.lock import Lock

Ask = Callable[..., LockRequest]

ROCM = frozenset({"triton-rocm", "rocm", "rocm-sdk-core", "rocm-sdk-libraries"})

builds_here = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="the wheels are for Linux x86_64"
)


def sources(lock: Lock) -> dict[str, str]:
    """Where each package comes from, as the last part of its index, and at which version."""
    return {
        package.name: f"{package.version} from {(package.index or '?').rpartition('/')[2]}"
        for package in lock.packages
    }


def built(uv: Uv, lock: Lock, folder: Path) -> Path:
    (folder / "pylock.toml").write_text(lock.text, "utf-8")
    uv.create(folder / "env", Path(sys.executable))
    uv.install(folder / "env", folder / "pylock.toml")
    return folder / "env"


def said_by(environment: Path, code: str) -> str:
    command = Command((str(interpreter_in(environment)), "-I", "-B", "-c", code))
    return Programs(os.environ)(command).check("ask the environment").strip()


def test_torchs_family_comes_from_torchs_index_and_stale_mirrors_never_win(uv: Uv, request_for: Ask) -> None:
    family = ("torch==2.15.0+cu132", "torchvision==0.29.2+cu132")
    lock = uv.lock(request_for(requirements=family, packages=("lightning",)))
    assert sources(lock) == {
        "filelock": "3.20.0 from simple",
        "lightning": "2.5.0 from simple",
        "numpy": "2.3.0 from simple",
        "nvidia-cudnn-cu13": "9.26.0.51 from simple",
        "torch": "2.15.0+cu132 from cu132",
        "torchvision": "0.29.2+cu132 from cu132",
        "triton": "3.9.0 from simple",
        "typing-extensions": "4.15.0 from simple",
    }


def test_no_other_name_is_even_asked_of_torchs_index(uv: Uv, request_for: Ask, index: Index) -> None:
    uv.lock(request_for(packages=("lightning",)))
    assert index.asked_for("whl/cu132", "torch")
    assert not index.asked_for("simple", "torch")
    assert not index.asked_for("whl/cu132", "numpy")
    assert not index.asked_for("whl/cu132", "lightning")


def test_what_torch_brings_along_of_its_family_comes_from_torchs_index_too(uv: Uv, request_for: Ask) -> None:
    # The package index has a `rocm` that only shares the name.
    lock = uv.lock(request_for("rocm7.14", family=ROCM, packages=("lightning",)))
    assert sources(lock) == {
        "filelock": "3.20.0 from simple",
        "lightning": "2.5.0 from simple",
        "numpy": "2.3.0 from simple",
        "rocm": "7.14.0 from rocm7.14",
        "rocm-sdk-libraries": "7.14.0 from rocm7.14",
        "torch": "2.15.0+rocm7.14 from rocm7.14",
        "triton-rocm": "3.9.0 from rocm7.14",
        "typing-extensions": "4.15.0 from simple",
    }


def test_a_companion_that_another_package_brings_along_keeps_the_label(
    uv: Uv, request_for: Ask, index: Index
) -> None:
    index.add("simple", Wheel(name="timm", version="1.0", requires=("torch", "torchvision")))
    family = frozenset({"torch", "torchvision", "torchaudio"})
    lock = uv.lock(request_for(packages=("timm",), family=family))
    assert sources(lock)["torchvision"] == "0.29.2+cu132 from cu132"
    assert "torchaudio" not in lock.versions


def test_the_same_request_gives_the_same_bytes_and_holds_no_path_of_this_machine(
    uv: Uv, request_for: Ask, tmp_path: Path
) -> None:
    first = uv.lock(request_for(packages=("lightning",)))
    again = uv.lock(request_for(packages=("lightning",)))
    assert first.text == again.text
    assert str(tmp_path) not in first.text
    assert "torchenv-" not in first.text


@pytest.mark.parametrize(
    ("platform", "backend", "python", "file"),
    [
        ("windows-x86_64", "cu132", "3.13", "torch-2.15.0+cu132-cp313-cp313-win_amd64.whl"),
        ("darwin-arm64", "cpu", "3.12", "torch-2.15.0+cpu-cp312-cp312-macosx_14_0_arm64.whl"),
        ("linux-aarch64", "cu134", "3.11", "torch-2.15.0+cu134-cp311-cp311-manylinux_2_28_aarch64.whl"),
        ("linux-x86_64", "rocm7.14", "3.12", "torch-2.15.0+rocm7.14-cp312-cp312-manylinux_2_28_x86_64.whl"),
    ],
)
def test_a_lock_for_another_machine_is_made_here(
    uv: Uv, request_for: Ask, *, platform: str, backend: str, python: str, file: str
) -> None:
    asked = request_for(backend, platform=platform, python=python, interpreter=None, macos="14.0")
    lock = uv.lock(replace(asked, family=ROCM))
    torch = next(package for package in lock.packages if package.name == "torch")
    assert [file.name for file in torch.files] == [file]


@builds_here
def test_a_lock_for_another_machine_is_not_installed_here(uv: Uv, request_for: Ask, tmp_path: Path) -> None:
    with pytest.raises(ToolFailed) as caught:
        built(uv, uv.lock(request_for(platform="windows-x86_64", interpreter=None)), tmp_path)
    assert str(caught.value) == (
        f"could not install pylock.toml into {tmp_path}/env:"
        " The target environment is not supported by the lockfile"
    )


def test_a_lock_says_what_it_is_for(uv: Uv, request_for: Ask) -> None:
    lock = uv.lock(request_for("cpu", platform="darwin-arm64", python="3.13", interpreter=None, macos="14.0"))
    assert lock.text.startswith("""\
lock-version = "1.0"
environments = ["sys_platform == 'darwin' and platform_machine == 'arm64'"]
requires-python = "==3.13.*"
created-by = "torchenv"
""")


def test_files_that_came_later_are_left_out_but_torch_is_exempt(uv: Uv, request_for: Ask) -> None:
    lock = uv.lock(request_for("rocm7.14", packages=("numpy",), family=ROCM, exclude_newer=date(2026, 3, 1)))
    assert sources(lock)["numpy"] == "2.2.0 from simple"
    assert sources(lock)["torch"] == "2.15.0+rocm7.14 from rocm7.14"


def test_constraints_hold(uv: Uv, request_for: Ask) -> None:
    lock = uv.lock(request_for(packages=("lightning",), constraints=("numpy<2.3",)))
    assert lock.versions["numpy"] == "2.2.0"


def test_the_package_indexs_own_build_needs_no_other_index(uv: Uv, request_for: Ask) -> None:
    lock = uv.lock(request_for(requirements=("torch==2.15.0",), torch_index=None))
    assert sources(lock)["torch"] == "2.15.0 from simple"


INHERITED = {
    "PIP_EXTRA_INDEX_URL": "{root}/whl/cpu",
    "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
    "PIP_TARGET": "{tmp}/target",
    "PYTHONPATH": "{tmp}/target",
    "UV_CONSTRAINT": "{tmp}/constraint.txt",
    "UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple",
    "UV_EXTRA_INDEX_URL": "{root}/whl/cpu",
    "UV_INDEX_URL": "http://127.0.0.1:9/simple",
    "UV_PYTHON": "3.9",
    "UV_TORCH_BACKEND": "cpu",
    "VIRTUAL_ENV": "{tmp}/other",
    "XDG_CONFIG_HOME": "{tmp}/config",
}


@builds_here
def test_nothing_inherited_steers_what_is_locked_and_installed(
    request_for: Ask, index: Index, environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "constraint.txt").write_text("torch<=2.14.1\n")
    settings = tmp_path / "config" / "uv" / "uv.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text('index-url = "http://127.0.0.1:9/simple"\n[pip]\ntorch-backend = "cpu"\n')
    inherited = {n: value.format(root=index.root, tmp=tmp_path) for n, value in INHERITED.items()}
    misled = Uv(Programs({**environ, **inherited}), program=uv_program())
    environment = built(misled, misled.lock(request_for(packages=("numpy",))), tmp_path)
    said = said_by(environment, "import torch, numpy; print(torch.__version__, numpy.__version__)")
    assert said == "2.15.0+cu132 2.3.0"
    assert not (tmp_path / "target").exists()


@builds_here
def test_an_environment_holds_exactly_the_lock_and_answers_an_inside_check(
    uv: Uv, request_for: Ask, tmp_path: Path
) -> None:
    environment = built(uv, uv.lock(request_for("rocm7.14", family=ROCM)), tmp_path)
    code = (
        "import importlib.metadata as m, torch;"
        "print(sorted(d.name for d in m.distributions()), torch.version.hip, torch.version.cuda,"
        " torch._C._cuda_getArchFlags(), torch.cuda.is_available(), torch.xpu.is_available(),"
        " torch.backends.mps.is_available(), (torch.ones(2, 3) @ torch.ones(3, 2)).sum().item())"
    )
    assert said_by(environment, code) == (
        "['filelock', 'rocm', 'rocm-sdk-libraries', 'torch', 'triton-rocm', 'typing-extensions']"
        " 7.14 None gfx90a gfx942 gfx1100 gfx1201 False False False 12.0"
    )


@builds_here
def test_a_second_environment_asks_the_network_nothing(
    uv: Uv, request_for: Ask, index: Index, tmp_path: Path
) -> None:
    lock = uv.lock(request_for("rocm7.14", family=ROCM, packages=("lightning",)))
    for name in ("first", "second"):
        index.forget()
        (tmp_path / name).mkdir()
        built(uv, lock, tmp_path / name)
        assert len(index.wheels_fetched()) == (len(lock.packages) if name == "first" else 0)
    assert index.requests == []


@builds_here
def test_a_file_that_was_replaced_is_refused(uv: Uv, request_for: Ask, index: Index, tmp_path: Path) -> None:
    lock = uv.lock(request_for())
    file = next(package for package in lock.packages if package.name == "filelock").files[0]
    index.damage(file.name)
    with pytest.raises(ToolFailed) as caught:
        built(uv, lock, tmp_path)
    got = sha256(index.served("simple", file.name)).hexdigest()
    assert str(caught.value) == (
        f"filelock==3.20.0 is not the file that was locked: expected sha256 {file.sha256}, got {got}"
    )


@builds_here
def test_a_locked_file_that_is_gone_is_named_with_its_last_address(
    uv: Uv, request_for: Ask, index: Index, tmp_path: Path
) -> None:
    lock = uv.lock(request_for("cu126", requirements=("torch==2.14.1+cu126",)))
    index.remove("simple", "nvidia-cudnn-cu12")
    with pytest.raises(ToolFailed) as caught:
        built(uv, lock, tmp_path)
    address = f"{index.packages}/nvidia_cudnn_cu12-9.10.2.21-py3-none-any.whl"
    assert str(caught.value) == (
        f"nvidia-cudnn-cu12==9.10.2.21 can no longer be fetched: {address} answered 404"
    )


def test_a_lock_without_hashes_is_not_installed(uv: Uv, request_for: Ask, tmp_path: Path) -> None:
    lock = uv.lock(request_for())
    (tmp_path / "pylock.toml").write_text(lock.text.replace("sha256", "sha512"), "utf-8")
    with pytest.raises(InputError, match="has no sha256"):
        uv.install(tmp_path / "env", tmp_path / "pylock.toml")


def test_an_index_that_lacks_the_release_is_named_with_it(uv: Uv, request_for: Ask, index: Index) -> None:
    with pytest.raises(ToolFailed) as caught:
        uv.lock(request_for(requirements=("torch==2.15.1+cu132",)))
    assert str(caught.value) == f"{index.backend('cu132')} has no torch==2.15.1+cu132"


def test_a_backend_that_does_not_exist_is_an_index_without_torch(
    uv: Uv, request_for: Ask, index: Index
) -> None:
    with pytest.raises(ToolFailed) as caught:
        uv.lock(request_for("cu199"))
    assert str(caught.value) == f"{index.backend('cu199')} has no torch==2.15.0+cu199"


def test_a_fossil_is_not_taken_for_a_companion(uv: Uv, request_for: Ask, index: Index) -> None:
    index.remove("whl/cu132", "torchaudio")
    index.add("whl/cu132", Wheel(name="torchaudio", version="2.2.0", requires=("torch",)))
    with pytest.raises(ToolFailed) as caught:
        uv.lock(request_for(requirements=("torch==2.15.0+cu132", "torchaudio==2.11.1+cu132")))
    assert str(caught.value) == f"{index.backend('cu132')} has no torchaudio==2.11.1+cu132"


def test_a_package_that_exists_nowhere_is_named(uv: Uv, request_for: Ask, index: Index) -> None:
    with pytest.raises(ToolFailed) as caught:
        uv.lock(request_for(packages=("nosuch>=2",)))
    assert str(caught.value) == f"{index.packages} has no nosuch>=2"


def test_a_version_beyond_what_exists_is_named(uv: Uv, request_for: Ask, index: Index) -> None:
    with pytest.raises(ToolFailed) as caught:
        uv.lock(request_for(packages=("numpy>=3",)))
    assert str(caught.value) == f"{index.packages} has no numpy>=3"


def test_a_python_without_a_wheel_is_named(uv: Uv, request_for: Ask, index: Index) -> None:
    with pytest.raises(ToolFailed) as caught:
        uv.lock(request_for(python="3.15", interpreter=None))
    assert str(caught.value) == (
        f"{index.backend('cu132')} has no wheel of torch==2.15.0+cu132 for Python 3.15 on linux-x86_64"
    )


def test_a_package_that_wants_another_torch_is_named_with_both_sides(uv: Uv, request_for: Ask) -> None:
    with pytest.raises(NothingSuits) as caught:
        uv.lock(request_for(packages=("xformers", "lightning")))
    assert str(caught.value) == ("xformers==0.0.40 wants torch==2.14.1, and the plan has torch==2.15.0+cu132")
    assert caught.value.hint == "leave xformers out, or plan a release that it takes: torch==2.14.1"


def test_an_index_that_does_not_answer_is_named_with_the_cause(uv: Uv, request_for: Ask) -> None:
    with pytest.raises(ToolFailed) as caught:
        uv.lock(request_for(torch_index="http://127.0.0.1:9/whl/cu132"))
    assert str(caught.value) == (
        "cannot reach http://127.0.0.1:9/whl/cu132/torch/: Connection refused (os error 111)"
    )


def test_an_environment_is_never_made_where_something_lies(uv: Uv, tmp_path: Path) -> None:
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "mine.txt").write_text("mine")
    with pytest.raises(ToolFailed, match="could not make the environment"):
        uv.create(tmp_path / "env", Path(sys.executable))
    assert [path.name for path in (tmp_path / "env").iterdir()] == ["mine.txt"]


@builds_here
def test_a_path_with_spaces_and_other_letters_works(uv: Uv, request_for: Ask, tmp_path: Path) -> None:
    folder = tmp_path / "größe und 環境"
    folder.mkdir()
    environment = built(uv, uv.lock(request_for("cpu")), folder)
    assert said_by(environment, "import torch; print(torch.__version__)") == "2.15.0+cpu"


@builds_here
@pytest.mark.parametrize(("wanted", "names"), [("copy", {1}), ("hardlink", {2})])
def test_files_come_from_the_cache_the_way_the_profile_says(
    environ: dict[str, str], request_for: Ask, tmp_path: Path, wanted: str, names: set[int]
) -> None:
    uv = Uv(Programs(environ), program=uv_program(), link_mode=wanted)
    environment = built(uv, uv.lock(request_for("cpu")), tmp_path)
    versions = list(environment.glob("lib/python*/site-packages/*/version.py"))
    assert {version.stat().st_nlink for version in versions} == names


@builds_here
def test_editing_every_file_of_one_environment_changes_no_byte_of_another_nor_of_the_cache(
    environ: dict[str, str], request_for: Ask, tmp_path: Path
) -> None:
    uv = Uv(Programs(environ), program=uv_program(), link_mode="hardlink")
    lock = uv.lock(request_for("cpu"))
    environments = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        environments.append(built(uv, lock, tmp_path / name))
        isolate(environments[-1])
    edited, other = environments
    cache = Path(environ["UV_CACHE_DIR"])

    def contents(directory: Path) -> dict[Path, bytes]:
        files = (path for path in directory.rglob("*") if path.is_file() and not path.is_symlink())
        return {file: file.read_bytes() for file in files}

    before = contents(other) | contents(cache)
    for file in edited.rglob("*.py"):
        with file.open("a") as text:
            text.write("# edited\n")
    assert contents(other) | contents(cache) == before
