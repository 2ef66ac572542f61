"""Which interpreters the probe finds, and what it lets them say of themselves."""

import os
import sys
from pathlib import Path

import pytest
from tests.support.machine import Says, Tools, probed

from torchenv.host.model import Interpreter, Problem
from torchenv.host.probe import Sources, pythons
from torchenv.host.probe.sources import Look
from torchenv.system.process import Programs

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the places are those of POSIX systems")


def installed(python: Path) -> Path:
    """Make a file where an interpreter would be; what it says is up to the tools of the test."""
    python.parent.mkdir(parents=True, exist_ok=True)
    python.write_text("")
    return python


def says(version: str, *, free_threaded: bool = False, machine: str = "x86_64", prefix: str = "/usr") -> str:
    return (
        f"version {version}\nimplementation cpython\nfree_threaded {free_threaded}\nmachine {machine}\n"
        f"conda {'conda' in prefix}\nprefix {prefix}\n"
    )


def versions(found: tuple[Interpreter, ...]) -> list[str]:
    return [str(item.version) for item in found]


def test_the_real_interpreter_says_what_it_is(tmp_path: Path) -> None:
    variables = {"PATH": str(Path(sys.base_prefix, "bin"))}
    sources = Sources(run=Programs(os.environ), variables=variables, root=tmp_path, libraries=False)
    look = Look(sources)
    look.run(pythons.look(look))
    found, problems = pythons.understand(look.gathered)
    assert problems == ()
    assert tuple(sys.version_info[:2]) in [item.version.release[:2] for item in found]
    mine = next(item for item in found if item.version.release[:2] == sys.version_info[:2])
    assert (mine.implementation, mine.machine) == (sys.implementation.name, os.uname().machine)
    assert mine.free_threaded is bool(getattr(sys, "_is_gil_enabled", lambda: True)() is False)


def test_one_interpreter_under_three_names_is_one_by_its_most_exact(tmp_path: Path) -> None:
    exact = installed(tmp_path / "bin/python3.12")
    for name in ("python3", "python"):
        (tmp_path / "bin" / name).symlink_to(exact)
    host = probed(
        tmp_path / "root",
        tools={"describe_interpreter.py": says("3.12.7")},
        variables={"PATH": str(exact.parent)},
    )
    assert [python.path for python in host.pythons] == [str(exact)]


def test_free_threading_is_what_the_build_says_and_not_the_name(tmp_path: Path) -> None:
    plain, free = (installed(tmp_path / f"bin/{name}") for name in ("python3.15", "python3.15t"))
    tools = {str(plain): says("3.15.0", free_threaded=True), str(free): says("3.15.0rc1")}
    host = probed(tmp_path / "root", tools=tools, variables={"PATH": str(plain.parent)})
    assert {python.path: python.minor for python in host.pythons} == {str(free): "3.15", str(plain): "3.15t"}
    assert sorted(versions(host.pythons)) == ["3.15.0", "3.15.0rc1"]


def test_tools_that_manage_pythons_are_looked_through(tmp_path: Path) -> None:
    home = tmp_path / "home"
    places = {
        ".local/share/uv/python/cpython-3.13.1-linux-x86_64-gnu/bin/python3.13": "3.13.1",
        ".pyenv/versions/3.12.1/bin/python3": "3.12.1",
        "miniforge3/bin/python3": "3.11.9",
        "miniforge3/envs/old/bin/python3": "3.10.2",
    }
    tools = {str(installed(home / place)): says(version) for place, version in places.items()}
    (home / ".conda").mkdir()
    (home / ".conda/environments.txt").write_text(f"{home / 'miniforge3/envs/old'}\n")
    variables = {"HOME": str(home), "CONDA_EXE": str(home / "miniforge3/bin/conda")}
    host = probed(tmp_path / "root", tools=tools, variables=variables)
    assert versions(host.pythons) == ["3.13.1", "3.12.1", "3.11.9", "3.10.2"]


def test_a_python_that_is_too_old_is_not_even_started(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for version in ("2.7.18", "3.6.15", "3.7.16"):
        installed(home / f".pyenv/versions/{version}/bin/python3")
    installed(home / "bin/python3.7")
    tools = Tools({})
    host = probed(tmp_path / "root", tools=tools, variables={"HOME": str(home), "PATH": str(home / "bin")})
    assert host.pythons == ()
    assert not any("describe_interpreter.py" in str(command) for command in tools.asked)


def test_shims_are_not_started_and_what_they_choose_from_is_found(tmp_path: Path) -> None:
    root = tmp_path / "somewhere/pyenv"
    shim = installed(root / "shims/python3.9")
    real = installed(root / "versions/3.12.1/bin/python3")
    tools = Tools({str(real): says("3.12.1")})
    host = probed(tmp_path / "root", tools=tools, variables={"PATH": str(shim.parent)})
    assert [python.path for python in host.pythons] == [str(real)]
    assert host.problems == ()


def test_an_interpreter_that_fails_is_passed_over_with_a_note(tmp_path: Path) -> None:
    broken, good = (installed(tmp_path / f"bin/{name}") for name in ("python3.9", "python3.12"))
    failure = Says(code=127, err="pyenv: python3.9: command not found\n")
    tools: dict[str, str | Says] = {str(broken): failure, str(good): says("3.12.7")}
    host = probed(tmp_path / "root", tools=tools, variables={"PATH": str(good.parent)})
    assert versions(host.pythons) == ["3.12.7"]
    message = f"skipping {broken}: pyenv: python3.9: command not found"
    assert host.problems == (Problem("interpreter-broken", str(broken), message),)


def test_the_python_of_a_venv_is_no_base_for_another(tmp_path: Path) -> None:
    python = installed(tmp_path / "venv/bin/python3.12")
    (tmp_path / "venv/pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.12.7\n")
    host = probed(
        tmp_path / "root",
        tools={"describe_interpreter.py": says("3.12.7")},
        variables={"PATH": str(python.parent)},
    )
    assert host.pythons == ()


def test_condas_pythons_are_marked_and_come_last(tmp_path: Path) -> None:
    conda, plain = installed(tmp_path / "miniconda/bin/python3"), installed(tmp_path / "bin/python3")
    tools = {str(conda): says("3.13.0", prefix="/miniconda"), str(plain): says("3.12.7")}
    path = os.pathsep.join((str(conda.parent), str(plain.parent)))
    host = probed(tmp_path / "root", tools=tools, variables={"PATH": path})
    assert [(str(python.version), python.conda) for python in host.pythons] == [
        ("3.12.7", False),
        ("3.13.0", True),
    ]


def test_an_interpreter_of_another_processor_says_so(tmp_path: Path) -> None:
    python = installed(tmp_path / "bin/python3.12")
    tools = {"describe_interpreter.py": says("3.12.7", machine="x86_64"), "sysctl": "hw.optional.arm64: 1\n"}
    mac = {"system": "darwin", "machine": "arm64", "libc": ""}
    host = probed(tmp_path / "root", tools=tools, variables={"PATH": str(python.parent)}, python=mac)
    assert (host.machine, host.pythons[0].machine) == ("arm64", "x86_64")


def test_the_launcher_of_windows_names_what_it_knows() -> None:
    text = (
        " -V:3.12 *        C:\\Users\\u\\AppData\\Local\\Programs\\Python\\Python312\\python.exe\n"
        " -V:3.11          C:\\Program Files\\Python311\\python.exe\n"
    )
    assert pythons.parse_launcher(text) == (
        r"C:\Users\u\AppData\Local\Programs\Python\Python312\python.exe",
        r"C:\Program Files\Python311\python.exe",
    )
