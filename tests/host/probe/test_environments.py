"""Which environments the probe finds, the torch in them, and which one is in use."""

import json
import os
from pathlib import Path

import pytest
from tests.support.machine import Tools, probed

from torchenv.host.model import Host, Problem
from torchenv.render.host import describe_host

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the places are those of POSIX systems")

ANSWER = "version 3.12.7\nimplementation cpython\nfree_threaded False\nmachine x86_64\nconda False\n"
TORCH = "__all__ = ['__version__']\n__version__ = '2.14.1+cu130'\ndebug = False\n"


def venv(place: Path, *, version: str = "3.12.3", cfg: str = "", torch: str | None = TORCH) -> Path:
    site = place / f"lib/python{version.rpartition('.')[0]}/site-packages"
    site.mkdir(parents=True)
    (place / "bin").mkdir()
    (place / "bin/python").write_text("")
    (place / "pyvenv.cfg").write_text(f"home = /usr/bin\nversion = {version}\n{cfg}")
    if torch is not None:
        (site / "torch").mkdir()
        (site / "torch/version.py").write_text(torch)
    return place


def conda(place: Path) -> Path:
    site = place / "lib/python3.11/site-packages/torch"
    site.mkdir(parents=True)
    (site / "version.py").write_text("__version__ = '2.6.0'\n")
    (place / "conda-meta").mkdir()
    (place / "conda-meta/python-3.11.9-h955ad1f_0_cpython.json").write_text("{}")
    return place


def seen(host: Host) -> list[tuple[str, str, str, bool]]:
    return [
        (environment.path, str(environment.python), str(environment.torch), environment.active)
        for environment in host.environments
    ]


def test_torch_is_read_from_its_file_with_the_local_label_and_nothing_is_started(tmp_path: Path) -> None:
    place = venv(tmp_path / "work/.venv")
    tools = Tools({})
    host = probed(tmp_path / "root", tools=tools, project=tmp_path / "work")
    assert seen(host) == [(str(place), "3.12.3", "2.14.1+cu130", True)]
    assert not any(str(place) in str(command) for command in tools.asked)


def test_a_dist_info_alone_still_names_the_version(tmp_path: Path) -> None:
    place = venv(tmp_path / "work/.venv", torch=None)
    (place / "lib/python3.12/site-packages/torch-2.14.1.dist-info").mkdir()
    host = probed(tmp_path / "root", project=tmp_path / "work")
    assert seen(host) == [(str(place), "3.12.3", "2.14.1", True)]


def test_an_environment_without_torch_is_one_all_the_same(tmp_path: Path) -> None:
    place = venv(tmp_path / "work/.venv", torch=None)
    host = probed(tmp_path / "root", project=tmp_path / "work")
    assert seen(host) == [(str(place), "3.12.3", "None", True)]


def test_the_activated_one_is_in_use_and_the_projects_is_listed(tmp_path: Path) -> None:
    other, own = venv(tmp_path / "other/.venv"), venv(tmp_path / "work/.venv")
    variables = {"VIRTUAL_ENV": str(other)}
    host = probed(tmp_path / "root", variables=variables, project=tmp_path / "work")
    assert seen(host) == [
        (str(other), "3.12.3", "2.14.1+cu130", True),
        (str(own), "3.12.3", "2.14.1+cu130", False),
    ]


def test_condas_base_does_not_displace_the_projects_own(tmp_path: Path) -> None:
    base, own = conda(tmp_path / "miniforge3"), venv(tmp_path / "work/.venv")
    variables = {"CONDA_PREFIX": str(base), "CONDA_DEFAULT_ENV": "base", "CONDA_SHLVL": "1"}
    host = probed(tmp_path / "root", variables=variables, project=tmp_path / "work")
    assert seen(host) == [
        (str(base), "3.11.9", "2.6.0", False),
        (str(own), "3.12.3", "2.14.1+cu130", True),
    ]
    message = (
        f"conda's base environment {base} is active in this shell and is not touched;"
        f" the active environment is {own}"
    )
    assert host.problems == (Problem("conda-base-active", "CONDA_PREFIX", message),)


def test_condas_base_is_in_use_where_there_is_nothing_else(tmp_path: Path) -> None:
    base = conda(tmp_path / "miniforge3")
    variables = {"CONDA_PREFIX": str(base), "CONDA_DEFAULT_ENV": "base"}
    host = probed(tmp_path / "root", variables=variables)
    assert seen(host) == [(str(base), "3.11.9", "2.6.0", True)]


def test_an_environment_of_conda_that_was_activated_by_name_is_in_use(tmp_path: Path) -> None:
    named, own = conda(tmp_path / "miniforge3/envs/train"), venv(tmp_path / "work/.venv")
    variables = {"CONDA_PREFIX": str(named), "CONDA_DEFAULT_ENV": "train"}
    host = probed(tmp_path / "root", variables=variables, project=tmp_path / "work")
    assert [(environment.path, environment.active) for environment in host.environments] == [
        (str(named), True),
        (str(own), False),
    ]


def test_one_environment_under_two_names_is_one(tmp_path: Path) -> None:
    own = venv(tmp_path / "work/.venv")
    host = probed(tmp_path / "root", variables={"VIRTUAL_ENV": str(own)}, project=tmp_path / "work")
    assert len(host.environments) == 1


def test_a_variable_that_leads_nowhere_is_said(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    host = probed(tmp_path / "root", variables={"VIRTUAL_ENV": str(gone)})
    assert host.environments == ()
    message = f"VIRTUAL_ENV points at {gone}, which is not an environment"
    assert host.problems == (Problem("environment-missing", str(gone), message),)


def test_an_environment_that_was_moved_says_from_where(tmp_path: Path) -> None:
    old = venv(tmp_path / "old/.venv", cfg=f"command = /usr/bin/python3 -m venv {tmp_path / 'old/.venv'}\n")
    assert probed(tmp_path / "root", project=tmp_path / "old").problems == ()
    (tmp_path / "old").rename(tmp_path / "new")
    host = probed(tmp_path / "root", project=tmp_path / "new")
    new = tmp_path / "new/.venv"
    assert seen(host) == [(str(new), "3.12.3", "2.14.1+cu130", True)]
    message = f"{new}: was moved here from {old}"
    assert host.problems == (Problem("environment-moved", str(new), message),)


def test_a_venv_first_on_the_path_is_in_use_although_nothing_activated_it(tmp_path: Path) -> None:
    place = venv(tmp_path / "opt/venv")
    host = probed(tmp_path / "root", variables={"PATH": str(place / "bin")})
    assert seen(host) == [(str(place), "3.12.3", "2.14.1+cu130", True)]


def test_a_venv_that_sees_the_systems_packages_has_the_systems_torch(tmp_path: Path) -> None:
    site = tmp_path / "usr/lib/python3.12/site-packages/torch"
    site.mkdir(parents=True)
    (site / "version.py").write_text(TORCH)
    cfg = f"home = {tmp_path / 'usr/bin'}\ninclude-system-site-packages = true\n"
    place = venv(tmp_path / "work/.venv", torch=None)
    (place / "pyvenv.cfg").write_text(f"version = 3.12.3\n{cfg}")
    host = probed(tmp_path / "root", project=tmp_path / "work")
    assert seen(host) == [(str(place), "3.12.3", "2.14.1+cu130", True)]


@pytest.mark.parametrize(
    "place",
    [
        "usr/lib/python3/dist-packages",
        "usr/local/lib/python3.12/dist-packages",
        "usr/lib/python3.12/site-packages",
    ],
)
def test_torch_of_the_system_itself_is_found_and_in_use_where_nothing_else_is(
    tmp_path: Path, place: str
) -> None:
    python = tmp_path / "usr/bin/python3"
    python.parent.mkdir(parents=True)
    python.write_text("")
    (tmp_path / place / "torch").mkdir(parents=True)
    (tmp_path / place / "torch/version.py").write_text(TORCH)
    answer = f"{ANSWER}prefix {tmp_path / 'usr'}\n"
    host = probed(tmp_path / "root", tools={str(python): answer}, variables={"PATH": str(python.parent)})
    assert seen(host) == [(str(tmp_path / "usr"), "3.12.7", "2.14.1+cu130", True)]


def test_torch_of_the_users_own_site_is_found(tmp_path: Path) -> None:
    python = tmp_path / "bin/python3"
    python.parent.mkdir(parents=True)
    python.write_text("")
    site = tmp_path / "home/.local/lib/python3.12/site-packages/torch"
    site.mkdir(parents=True)
    (site / "version.py").write_text(TORCH)
    answer = f"{ANSWER}prefix /nowhere\n"
    variables = {"PATH": str(python.parent), "HOME": str(tmp_path / "home")}
    host = probed(tmp_path / "root", tools={str(python): answer}, variables=variables)
    assert seen(host) == [(str(tmp_path / "home/.local"), "3.12.7", "2.14.1+cu130", True)]


def test_the_users_own_torch_goes_before_the_systems_and_only_one_is_in_use(tmp_path: Path) -> None:
    python = tmp_path / "usr/bin/python3"
    python.parent.mkdir(parents=True)
    python.write_text("")
    for place in ("home/.local/lib/python3.12/site-packages", "usr/lib/python3/dist-packages"):
        (tmp_path / place / "torch").mkdir(parents=True)
        (tmp_path / place / "torch/version.py").write_text(TORCH)
    answer = f"{ANSWER}prefix {tmp_path / 'usr'}\n"
    variables = {"PATH": str(python.parent), "HOME": str(tmp_path / "home")}
    host = probed(tmp_path / "root", tools={str(python): answer}, variables=variables)
    assert [(environment.path, environment.active) for environment in host.environments] == [
        (str(tmp_path / "home/.local"), True),
        (str(tmp_path / "usr"), False),
    ]


def test_nothing_is_taken_to_be_in_use_behind_shims(tmp_path: Path) -> None:
    place = venv(tmp_path / "opt/venv")
    shims = tmp_path / "pyenv/shims"
    shims.mkdir(parents=True)
    path = os.pathsep.join((str(shims), str(place / "bin")))
    assert probed(tmp_path / "root", variables={"PATH": path}).environments == ()


def test_an_environment_that_no_shell_is_in_is_called_found(tmp_path: Path) -> None:
    own = venv(tmp_path / "work/.venv")
    found = probed(tmp_path / "root", project=tmp_path / "work")
    assert [(place.active, place.was_found) for place in found.environments] == [(True, True)]
    assert f"environment (found in this project): {own}, torch" in describe_host(found)
    assert Host.from_json(json.dumps(found.to_document()), "host.json").environments == found.environments
    variables = {"VIRTUAL_ENV": str(own)}
    active = probed(tmp_path / "root", variables=variables, project=tmp_path / "work")
    assert f"environment (active): {own}, torch" in describe_host(active)
