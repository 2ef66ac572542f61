"""What is wrong with an environment is found by its files, each with its path and its cure."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.installed import Site

from torchenv.environment.findings import EnvironmentFinding, find_wrong
from torchenv.environment.inspect import describe, distributions
from torchenv.environment.verify import find_cut_files


@pytest.fixture
def site(tmp_path: Path) -> Site:
    site = Site(tmp_path / "env")
    site.add_torch("2.14.1", "cu130")
    return site


def test_an_environment_as_installers_leave_it_has_nothing_wrong(site: Site) -> None:
    site.add("torchvision", "0.29.1", "torch==2.14.1", "numpy", 'torch-xla>=2; extra == "xla"')
    assert find_wrong(site.installation) == ()


def test_a_dead_interpreter_link_is_found_with_where_it_leads(site: Site) -> None:
    (site.path / "bin").mkdir()
    python = site.path / "bin" / "python"
    python.symlink_to(site.path / "gone" / "python3.12")
    message = f"points at {site.path / 'gone' / 'python3.12'}, which is gone"
    assert find_wrong(site.installation) == (
        EnvironmentFinding("interpreter-gone", str(python), message, "torchenv create"),
    )


def test_two_records_of_one_package_are_found_whatever_their_kind(site: Site) -> None:
    site.add("numpy", "2.3.0")
    second = site.packages / "NumPy-2.2.0.egg-info"
    second.write_text("Metadata-Version: 1.2\nName: numpy\nVersion: 2.2.0\n")
    (found,) = find_wrong(site.installation)
    assert (found.code, found.path) == ("duplicate", str(site.packages / "numpy-2.3.0.dist-info"))
    assert found.message == "is a second record of numpy, next to NumPy-2.2.0.egg-info"


def test_what_an_interrupted_uninstall_left_is_no_package_and_is_found(site: Site) -> None:
    left = site.packages / "~umpy-2.3.0.dist-info"
    left.mkdir()
    (left / "METADATA").write_text("Metadata-Version: 2.4\nName: numpy\nVersion: 2.3.0\n")
    assert "numpy" not in {distribution.name for distribution in distributions(site.installation)}
    message = "is what an interrupted uninstall left behind"
    assert find_wrong(site.installation) == (
        EnvironmentFinding("half-uninstalled", str(left), message, f"rm -r {left}"),
    )


def test_a_companion_of_another_torch_is_found(site: Site) -> None:
    site.add("torchvision", "0.30.0", "torch==2.15.0")
    (found,) = find_wrong(site.installation)
    info = site.packages / "torchvision-0.30.0.dist-info"
    assert (found.code, found.path) == ("other-torch", str(info))
    assert found.message == "torchvision 0.30.0 requires torch==2.15.0, and torch is 2.14.1+cu130"
    assert found.cure == f"torchenv create --like {site.path}"


def test_an_egg_info_counts_with_what_it_requires_and_its_files(site: Site) -> None:
    egg = site.packages / "old_tool-1.0-py3.12.egg-info"
    egg.mkdir()
    (egg / "PKG-INFO").write_text("Metadata-Version: 1.2\nName: old-tool\nVersion: 1.0\n")
    (egg / "requires.txt").write_text("torch==2.11\n\n[gui]\nqt\n")
    (egg / "installed-files.txt").write_text("../old_tool.py\nPKG-INFO\n")
    (tool,) = (found for found in distributions(site.installation) if found.name == "old-tool")
    assert (tool.version, tool.requires[0]) == ("1.0", "torch==2.11")
    assert [Path(line.path) for line in tool.record()] == [
        site.packages / "old_tool.py",
        egg / "PKG-INFO",
    ]
    (found,) = find_wrong(site.installation)
    assert found.message == "old-tool 1.0 requires torch==2.11, and torch is 2.14.1+cu130"


def test_metadata_that_nobody_can_read_are_those_of_no_package(site: Site) -> None:
    info = site.packages / "odd-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_bytes(b"Name: odd\nVersion: \xff\xfe\n")
    (site.packages / "empty-1.0.dist-info").mkdir()
    assert find_wrong(site.installation) == ()
    assert "empty" not in {distribution.name for distribution in distributions(site.installation)}


def test_a_torch_known_only_by_its_egg_info_is_seen(tmp_path: Path) -> None:
    site = Site(tmp_path / "env")
    (site.packages / "torch-2.14.1-py3.12.egg-info").write_text("Name: torch\nVersion: 2.14.1\n")
    assert describe(site.path).torch == "2.14.1"


def test_packages_of_the_base_are_not_judged_as_its_own(tmp_path: Path) -> None:
    base = tmp_path / "usr" / "lib" / "python3.12" / "site-packages"
    base.mkdir(parents=True)
    (base / "~orch").mkdir()
    site = Site(tmp_path / "env")
    settings = f"home = {tmp_path / 'usr' / 'bin'}\nversion = 3.12.4\ninclude-system-site-packages = true\n"
    (site.path / "pyvenv.cfg").write_text(settings)
    assert describe(site.path).site_packages == (site.packages, base)
    assert find_wrong(describe(site.path)) == ()


def test_a_directory_that_may_not_be_listed_is_empty(site: Site) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may list every directory")
    site.packages.chmod(0o311)
    try:
        assert distributions(site.installation) == ()
    finally:
        site.packages.chmod(0o755)


def test_a_file_that_was_cut_is_found_by_the_size_in_its_record(site: Site) -> None:
    site.add("numpy", "2.3.0", files={"numpy/core.so": b"whole", "numpy/gone.py": b"x", "numpy/ok.py": b"y"})
    assert [finding.code for _, finding in find_cut_files(site.installation)] == []
    (site.packages / "numpy/core.so").write_bytes(b"wh")
    (site.packages / "numpy/gone.py").unlink()
    assert [(name, str(finding)) for name, finding in find_cut_files(site.installation)] == [
        ("numpy", f"{site.packages / 'numpy/core.so'}: has 2 bytes, and its RECORD says 5"),
        ("numpy", f"{site.packages / 'numpy/gone.py'}: is missing"),
    ]
