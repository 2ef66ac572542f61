"""A kernel starts the environment's own Python, wherever `current` leads."""

from __future__ import annotations

import json
import os
import sys
import venv
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.support.workshop import NOW, PYTHON

from torchenv.actions.kernel import Kernel, install_kernel, jupyter_data, remove_kernel
from torchenv.environment.base_python import BasePython
from torchenv.errors import InputError
from torchenv.system.disk import Disk
from torchenv.workspace.records import Environment
from torchenv.workspace.store import Store

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the made-up environments are laid out as on Unix")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "workspace")


def environment(store: Store, *packages: str) -> Environment:
    """Make environment 2.15.0+cpu with these packages, by name alone."""
    with store.hold("a test"):
        manifest, new = store.read().begin(
            "2.15.0-cpu-py3.12",
            within=store.environments,
            python=BasePython(PYTHON, sys.executable),
            at=NOW,
            torch="2.15.0+cpu",
            backend="cpu",
        )
        venv.create(new.path, symlinks=True)
        (site,) = Path(new.path).glob("lib/python3*/site-packages")
        for package in packages:
            (site / f"{package}-7.0.dist-info").mkdir()
            (site / f"{package}-7.0.dist-info" / "METADATA").write_text(f"Name: {package}\nVersion: 7.0\n")
        manifest, ready = manifest.commit(new)
        store.write(manifest)
    return ready


def test_a_kernel_names_the_environments_own_python(store: Store, tmp_path: Path) -> None:
    made = environment(store, "ipykernel")
    kernel = install_kernel(made, store, tmp_path / "jupyter", Disk())
    python = f"{made.path}/bin/python"
    assert kernel.directory == tmp_path / "jupyter" / "kernels" / kernel.name
    written = json.loads((kernel.directory / "kernel.json").read_text("utf-8"))
    assert written["metadata"]["torchenv"].pop("digest").startswith("sha256:")
    assert written == {
        "argv": [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": "torch 2.15.0+cpu (2.15.0-cpu-py3.12)",
        "language": "python",
        "metadata": {"debugger": True, "torchenv": {"environment": made.path}},
        "env": {
            "PATH": f"{made.path}/bin:${{PATH}}",
            "PYTHONHOME": "",
            "PYTHONPATH": "",
            "VIRTUAL_ENV": made.path,
        },
    }


def test_two_projects_with_the_same_environment_have_two_kernels(store: Store, tmp_path: Path) -> None:
    other = Store(tmp_path / "other" / "workspace")
    kernels = [
        install_kernel(environment(item, "ipykernel"), item, tmp_path / "jupyter", Disk())
        for item in (store, other)
    ]
    names = [kernel.name for kernel in kernels]
    assert names[0] != names[1]
    assert all(name.startswith("torchenv-2.15.0-cpu-py3.12-") for name in names)


def test_without_ipykernel_there_is_no_kernel(store: Store, tmp_path: Path) -> None:
    made = environment(store, "numpy")
    with pytest.raises(InputError) as raised:
        install_kernel(made, store, tmp_path / "jupyter", Disk())
    assert str(raised.value) == "environment 1 (2.15.0-cpu-py3.12) has no ipykernel, which a kernel needs"
    assert raised.value.hint == (
        "add ipykernel to [packages] requirements of the profile and make a new environment"
    )
    assert not (tmp_path / "jupyter").exists()


def test_a_kernel_is_removed_once(store: Store, tmp_path: Path) -> None:
    made = environment(store, "ipykernel")
    data = tmp_path / "jupyter"
    kernel = install_kernel(made, store, data, Disk())
    assert remove_kernel(made, data, Disk()) == kernel
    assert list((data / "kernels").iterdir()) == []
    with pytest.raises(InputError) as raised:
        remove_kernel(made, data, Disk())
    assert str(raised.value) == f"environment 1 (2.15.0-cpu-py3.12) is not a kernel in {data}/kernels"


def test_a_kernel_is_installed_again_but_not_over_an_edit(store: Store, tmp_path: Path) -> None:
    made, data = environment(store, "ipykernel"), tmp_path / "jupyter"
    kernel = install_kernel(made, store, data, Disk())
    assert install_kernel(made, store, data, Disk()) == kernel
    file = kernel.directory / "kernel.json"
    edited = file.read_text("utf-8").replace('"torch 2.15.0+cpu', '"mine')
    file.write_text(edited, "utf-8")
    with pytest.raises(InputError) as raised:
        install_kernel(made, store, data, Disk())
    assert str(raised.value) == f"`{file}` was edited since torchenv wrote it"
    assert raised.value.hint == "keep a copy, then delete it with `torchenv kernel remove 1`"
    assert file.read_text("utf-8") == edited
    remove_kernel(made, data, Disk())
    install_kernel(made, store, data, Disk())


@pytest.mark.parametrize("content", ['{"argv": ["python"]}', "no JSON", "[]"])
def test_a_kernel_of_another_is_neither_replaced_nor_deleted(
    content: str, store: Store, tmp_path: Path
) -> None:
    made, data = environment(store, "ipykernel"), tmp_path / "jupyter"
    file = install_kernel(made, store, data, Disk()).directory / "kernel.json"
    file.write_text(content, "utf-8")
    changes: list[Callable[[], Kernel]] = [
        partial(install_kernel, made, store, data, Disk()),
        partial(remove_kernel, made, data, Disk()),
    ]
    for change in changes:
        with pytest.raises(InputError) as raised:
            change()
        assert str(raised.value) == f"`{file}` was not written by torchenv"
        assert raised.value.hint == f"move it away with `mv {file} {file}.old`"
    assert file.read_text("utf-8") == content


def test_files_beside_a_kernel_stay(store: Store, tmp_path: Path) -> None:
    made, data = environment(store, "ipykernel"), tmp_path / "jupyter"
    kernel = install_kernel(made, store, data, Disk())
    logo = kernel.directory / "logo-64x64.png"
    logo.write_bytes(b"mine")
    remove_kernel(made, data, Disk())
    assert list(kernel.directory.iterdir()) == [logo]


@pytest.mark.parametrize("linked", ["", "kernel.json"])
def test_no_kernel_is_written_or_deleted_through_a_link(linked: str, store: Store, tmp_path: Path) -> None:
    made, data = environment(store, "ipykernel"), tmp_path / "jupyter"
    path = install_kernel(made, store, data, Disk()).directory / linked
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    changes: list[Callable[[], Kernel]] = [
        partial(install_kernel, made, store, data, Disk()),
        partial(remove_kernel, made, data, Disk()),
    ]
    for change in changes:
        with pytest.raises(
            InputError, match="is a link: torchenv neither writes nor deletes a kernel through links"
        ):
            change()
    assert path.is_symlink()
    assert (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    ("environ", "system", "place"),
    [
        ({"JUPYTER_DATA_DIR": "/data/jupyter"}, "linux", "/data/jupyter"),
        ({"XDG_DATA_HOME": "/data"}, "linux", "/data/jupyter"),
        ({}, "linux", "/home/u/.local/share/jupyter"),
        ({}, "darwin", "/home/u/Library/Jupyter"),
        ({"APPDATA": "/roaming"}, "win32", "/roaming/jupyter"),
        ({}, "win32", "/home/u/AppData/Roaming/jupyter"),
    ],
)
def test_kernels_go_where_jupyter_looks(environ: dict[str, str], system: str, place: str) -> None:
    assert jupyter_data(environ, Path("/home/u"), system) == Path(place)
