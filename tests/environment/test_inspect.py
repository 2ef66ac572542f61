"""An environment told by its files alone."""

from __future__ import annotations

import sys
import venv
from pathlib import Path

import pytest

from torchenv.environment.identity import identity
from torchenv.environment.inspect import Layout, describe, distributions, find_stray_scripts, torch_version
from torchenv.errors import InputError


def write(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def install_torch(site: Path, version: str = "2.14.1+cu130") -> None:
    # The text of torch/version.py in the wheel; the metadata leave the local label out.
    text = f"__all__ = ['__version__', 'debug']\n__version__ = '{version}'\ndebug = False\n"
    write(site / "torch" / "version.py", text)
    public = version.partition("+")[0]
    write(site / f"torch-{public}.dist-info" / "METADATA", f"Name: torch\nVersion: {public}\n")


def test_a_venv_is_told_by_its_configuration(tmp_path: Path) -> None:
    path = tmp_path / "my env"
    venv.create(path, symlinks=True)
    site = next(path.glob("lib/python3*/site-packages"))
    install_torch(site)

    found = describe(path)
    assert (found.layout, found.path, found.site_packages) == (Layout.VENV, path, (site,))
    assert found.python == ".".join(map(str, sys.version_info[:3]))
    assert found.interpreter == path / "bin" / "python"
    assert found.base is not None
    assert found.base.resolve() == Path(sys.executable).resolve()
    assert (found.torch, found.backend) == ("2.14.1+cu130", "cu130")
    assert not found.has_moved


def test_an_interpreter_stands_for_its_environment(tmp_path: Path) -> None:
    venv.create(tmp_path / "env", symlinks=True)
    assert describe(tmp_path / "env" / "bin" / "python3") == describe(tmp_path / "env")


@pytest.mark.parametrize(
    ("settings", "version", "base"),
    [
        (
            "home = /opt/py/bin\nimplementation = CPython\nuv = 0.9.9\nversion_info = 3.12.1\n",
            "3.12.1",
            "{real}",
        ),
        (
            "home = /opt/py/bin\nversion_info = 3.12.4.final.0\nbase-executable = /opt/py/bin/python3.12\n",
            "3.12.4",
            "/opt/py/bin/python3.12",
        ),
        (
            "home = /opt/py/bin\nversion = 3.11.7\nexecutable = /opt/py/bin/python3.11\n",
            "3.11.7",
            "/opt/py/bin/python3.11",
        ),
    ],
)
def test_each_maker_of_venvs_is_understood(tmp_path: Path, settings: str, version: str, base: str) -> None:
    real = write(tmp_path / "real" / "python3.12")
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "bin" / "python").symlink_to(real)
    write(tmp_path / "env" / "pyvenv.cfg", settings)
    found = describe(tmp_path / "env")
    assert found.python == version
    assert str(found.base) == base.format(real=real)


def test_a_venv_whose_interpreter_is_gone_is_still_described(tmp_path: Path) -> None:
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "bin" / "python").symlink_to("/opt/gone/bin/python3.12")
    write(tmp_path / "env" / "pyvenv.cfg", "home = /opt/gone/bin\nversion = 3.12.1\n")
    assert str(describe(tmp_path / "env").base) == "/opt/gone/bin/python3.12"


def test_a_venv_on_windows_is_told_by_its_other_layout(tmp_path: Path) -> None:
    write(tmp_path / "pyvenv.cfg", "home = C:\\Python312\nversion = 3.12.4\n")
    write(tmp_path / "Scripts" / "python.exe")
    install_torch(tmp_path / "Lib" / "site-packages", "2.15.0+cpu")
    found = describe(tmp_path)
    assert found.interpreter == tmp_path / "Scripts" / "python.exe"
    assert (found.torch, found.backend) == ("2.15.0+cpu", "cpu")


def test_a_conda_environment_is_told_by_its_metadata(tmp_path: Path) -> None:
    write(tmp_path / "conda-meta" / "python-3.12.4-h194c7f8_0_cpython.json", "{}")
    write(tmp_path / "conda-meta" / "history", "==> 2026-11-02 09:12:44 <==\n+defaults::python-3.12.4\n")
    write(tmp_path / "bin" / "python")
    install_torch(tmp_path / "lib" / "python3.12" / "site-packages", "2.6.0")
    found = describe(tmp_path)
    assert (found.layout, found.python, found.torch, found.backend) == (Layout.CONDA, "3.12.4", "2.6.0", None)
    assert found.base == tmp_path / "bin" / "python"


def test_a_system_python_is_described_by_what_python3_means(tmp_path: Path) -> None:
    write(tmp_path / "bin" / "python3.12")
    (tmp_path / "bin" / "python3").symlink_to("python3.12")
    write(tmp_path / "include" / "python3.12" / "patchlevel.h", '#define PY_VERSION    "3.12.3"\n')
    for directory in ("lib/python3.11/dist-packages", "lib/python3/dist-packages"):
        (tmp_path / directory).mkdir(parents=True)
    local = tmp_path / "local/lib/python3.12/dist-packages"
    install_torch(local)
    found = describe(tmp_path)
    assert (found.layout, found.python, found.torch) == (Layout.SYSTEM, "3.12.3", "2.14.1+cu130")
    assert found.site_packages == (local, tmp_path / "lib/python3/dist-packages")
    assert found.base == tmp_path / "bin" / "python3.12"


@pytest.mark.parametrize("site", ["lib/python3.12/site-packages", "Python312/site-packages"])
def test_a_user_directory_is_told_by_its_packages_alone(tmp_path: Path, site: str) -> None:
    install_torch(tmp_path / site)
    found = describe(tmp_path)
    assert (found.layout, found.python, found.torch) == (Layout.USER, "3.12", "2.14.1+cu130")
    assert (found.interpreter, found.base) == (None, None)


def test_a_directory_without_python_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        describe(tmp_path)
    assert str(caught.value) == f"`{tmp_path}` is not a Python environment"
    assert caught.value.hint == (
        "name the directory of a venv or of a conda environment, or the path of an interpreter"
    )


def test_torch_without_its_version_file_is_told_by_its_metadata(tmp_path: Path) -> None:
    write(tmp_path / "lib/python3.12/site-packages/torch-2.13.0.dist-info/METADATA")
    assert describe(tmp_path).torch == "2.13.0"


def test_the_installed_packages_are_listed_with_what_was_asked_for_by_name(tmp_path: Path) -> None:
    site = tmp_path / "lib/python3.12/site-packages"
    info = site / "Foo_Bar-1.0.dist-info"
    metadata = "Metadata-Version: 2.4\nName: Foo.Bar\nVersion: 1.0\nRequires-Dist: numpy>=2\n\nName: no\n"
    write(info / "METADATA", metadata)
    write(info / "REQUESTED")
    write(info / "direct_url.json", '{"url": "file:///src", "dir_info": {"editable": true}}')
    empty = "sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"
    write(info / "RECORD", f'foo.py,{empty},0\n"a,b.py",{empty},0\n../../../bin/foo,{empty},0\nfoo.pyc,,\n')
    write(site / "numpy-2.3.0.dist-info" / "METADATA", "Name: numpy\nVersion: 2.3.0\n")
    write(site / "broken-1.0.dist-info" / "METADATA", "")

    foo, numpy = distributions(describe(tmp_path))
    assert (foo.name, foo.version, foo.requested, foo.requires) == ("Foo.Bar", "1.0", True, ("numpy>=2",))
    assert foo.direct_url == '{"url": "file:///src", "dir_info": {"editable": true}}'
    digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert [(Path(line.path), line.digest, line.size) for line in foo.record()] == [
        (site / "foo.py", digest, 0),
        (site / "a,b.py", digest, 0),
        (tmp_path / "bin/foo", digest, 0),
        (site / "foo.pyc", None, None),
    ]
    assert (numpy.requested, list(numpy.record())) == (False, [])


def test_a_renamed_folder_shows_where_its_environment_was_made_and_which_scripts_stray(
    tmp_path: Path,
) -> None:
    old, new = tmp_path / "old" / ".venv", tmp_path / "new" / ".venv"
    venv.create(old, symlinks=True)
    write(old / "bin" / "pip", f"#!{old}/bin/python\nimport pip\n")
    spaced = f"#!/bin/sh\n'''exec' \"{old}/bin/python3\" \"$0\" \"$@\"\n' '''\nimport pip\n"
    write(old / "bin" / "torchrun", spaced)
    write(old / "bin" / "tool", "#!/bin/sh\necho\n")
    assert find_stray_scripts(describe(old)) == ()
    known = identity(old)
    (tmp_path / "old").rename(tmp_path / "new")

    found = describe(new)
    assert found.has_moved
    assert found.made_at == old
    assert find_stray_scripts(found) == (
        (new / "bin" / "pip", f"{old}/bin/python"),
        (new / "bin" / "torchrun", f"{old}/bin/python3"),
    )
    assert identity(new) == known


def test_a_venv_made_by_uv_says_in_its_activate_script_where_it_was_made(tmp_path: Path) -> None:
    write(tmp_path / "pyvenv.cfg", "home = /usr/bin\nuv = 0.9.9\nversion_info = 3.12.1\n")
    write(
        tmp_path / "bin" / "activate", "export OTHER=1\nVIRTUAL_ENV='/home/u/old/.venv'\nexport VIRTUAL_ENV\n"
    )
    assert describe(tmp_path).made_at == Path("/home/u/old/.venv")


def test_a_project_reached_through_a_link_was_not_moved(tmp_path: Path) -> None:
    venv.create(tmp_path / "real" / "env", symlinks=True)
    (tmp_path / "link").symlink_to("real")
    assert not describe(tmp_path / "link" / "env").has_moved


def test_an_environment_made_anew_at_the_same_place_is_another(tmp_path: Path) -> None:
    venv.create(tmp_path / "env", symlinks=True)
    before = identity(tmp_path / "env")
    venv.create(tmp_path / "env", symlinks=True, clear=True)
    assert before is not None
    assert identity(tmp_path / "env") != before


def test_a_conda_environment_stays_itself_when_packages_are_added_to_it(tmp_path: Path) -> None:
    history = write(tmp_path / "conda-meta" / "history", "==> 2026-11-02 09:12:44 <==\n+python\n")
    before = identity(tmp_path)
    history.write_text(history.read_text() + "==> 2026-11-03 10:00:00 <==\n+numpy\n")
    assert identity(tmp_path) == before
    history.write_text("==> 2026-11-04 10:00:00 <==\n+python\n")
    assert identity(tmp_path) != before


@pytest.mark.parametrize(
    ("written", "metadata", "version"),
    [
        ("2.15.0a0+git1f2e", "2.15.0a0", "2.15.0a0+git1f2e"),
        ("2.15.0+built by hand", "2.15.0", "2.15.0"),
        ("unknown", "unknown", None),
    ],
)
def test_what_is_no_version_is_none_of_torchs(
    tmp_path: Path, written: str, metadata: str, version: str | None
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "version.py").write_text(f"__version__ = '{written}'\n")
    (tmp_path / f"torch-{metadata}.dist-info").mkdir()
    assert torch_version((tmp_path,)) == version
