"""An existing environment gives the packages that it was asked for, without torch's family."""

from __future__ import annotations

from tests.support.installed import Site

from torchenv.catalogue.releases import Catalogue
from torchenv.environment.inspect import distributions
from torchenv.packages import CarriedPackages, CarriedRequirement, PackageNote, companions, of_environment


def carried(site: Site, catalogue: Catalogue) -> CarriedPackages:
    return of_environment(distributions(site.installation), ".venv", catalogue)


def wanted(site: Site, catalogue: Catalogue) -> dict[str, str]:
    return {wanted.name: wanted.version for wanted in carried(site, catalogue).wanted}


def test_what_was_asked_for_goes_along_and_what_only_that_requires_does_not(
    site: Site, catalogue: Catalogue
) -> None:
    site.add_torch()
    site.add("lightning", "2.5.0", "torch>=2.1", "numpy", requested=True)
    site.add("numpy", "2.2.0")
    assert wanted(site, catalogue) == {"lightning": "2.5.0"}


def test_the_same_version_is_asked_for_first_then_a_newer_one_then_any(
    site: Site, catalogue: Catalogue
) -> None:
    site.add("numpy", "2.2.0+site.1", requested=True)
    (numpy,) = carried(site, catalogue).wanted
    assert numpy.asks == ("numpy==2.2.0+site.1", "numpy>=2.2.0", "numpy")


def test_exactly_what_only_torch_brought_is_left_to_torch(site: Site, catalogue: Catalogue) -> None:
    site.add_torch()
    site.add("tqdm", "4.67", requested=True)
    assert wanted(site, catalogue) == {"tqdm": "4.67"}


def test_what_torch_needs_too_goes_along_where_it_was_asked_for(site: Site, catalogue: Catalogue) -> None:
    site.add_torch()
    site.add("numpy", "2.2.0", requested=True)
    site.add("torchvision", "0.29.1", "numpy", "torch>=2.14.0", requested=True)
    assert wanted(site, catalogue) == {"numpy": "2.2.0"}


def test_torchs_libraries_stay_with_torch_even_where_every_package_is_marked(
    site: Site, catalogue: Catalogue
) -> None:
    # As `uv pip sync` and `pip install -r` of a frozen list leave it.
    site.add_torch()
    for info in site.packages.glob("*.dist-info"):
        (info / "REQUESTED").write_text("")
    assert wanted(site, catalogue) == {"filelock": "3.20.0", "mpmath": "1.3.0", "sympy": "1.14.0"}


def test_a_library_of_nvidia_that_torch_does_not_use_goes_along(site: Site, catalogue: Catalogue) -> None:
    site.add_torch()
    site.add("nvidia-ml-py", "13.615.71", requested=True)
    site.add("nvidia-cudnn-cu12", "9.10.2.21", requested=True)
    assert wanted(site, catalogue) == {"nvidia-cudnn-cu12": "9.10.2.21", "nvidia-ml-py": "13.615.71"}


def test_what_an_older_torch_left_behind_stays_behind(site: Site, catalogue: Catalogue) -> None:
    site.add_torch()
    site.add("nvidia-cudnn-cu12", "9.10.2.21")
    assert wanted(site, catalogue) == {}


def test_what_only_an_extra_brought_is_not_lost(site: Site, catalogue: Catalogue) -> None:
    # pip install lightning[extra]: the mark does not say which extras.
    site.add("lightning", "2.5.0", "numpy", 'jsonargparse>=4; extra == "extra"', requested=True)
    site.add("numpy", "2.2.0")
    site.add("jsonargparse", "4.40.0", "pyyaml")
    site.add("pyyaml", "6.0.2")
    assert wanted(site, catalogue) == {"jsonargparse": "4.40.0", "lightning": "2.5.0"}


def test_without_marks_the_topmost_packages_go_along(site: Site, catalogue: Catalogue) -> None:
    # conda's packages have the marks and addresses of the machine that they were made on.
    built = {"url": "file:///home/conda/feedstock_root/numpy", "dir_info": {}}
    site.add_torch()
    site.add("pandas", "2.3.0", "numpy", installer="conda")
    site.add("numpy", "2.2.0", installer="conda", requested=True, direct_url=built)
    assert wanted(site, catalogue) == {"pandas": "2.3.0"}
    assert carried(site, catalogue).notes == ()


def test_packages_that_require_each_other_are_not_lost(site: Site, catalogue: Catalogue) -> None:
    site.add("egg", "1", "hen")
    site.add("hen", "2", "egg")
    assert wanted(site, catalogue) == {"egg": "1"}


def test_companions_are_asked_of_the_plan_without_a_version(site: Site, catalogue: Catalogue) -> None:
    site.add_torch()
    site.add("torchvision", "0.29.1", "numpy", "torch>=2.14.0", requested=True)
    site.add("torchaudio", "2.11.0", "torch", requested=True)
    found = carried(site, catalogue)
    assert found.family == (
        CarriedRequirement("torchaudio", ".venv"),
        CarriedRequirement("torchvision", ".venv"),
    )
    assert companions(found, "linux-x86_64") == ("torchaudio", "torchvision")


def test_the_tools_that_make_environments_are_not_carried(site: Site, catalogue: Catalogue) -> None:
    for name in ("pip", "setuptools", "wheel"):
        site.add(name, "80.0", requested=True)
    assert wanted(site, catalogue) == {}


def test_a_commit_of_a_repository_is_asked_for_by_its_address(site: Site, catalogue: Catalogue) -> None:
    vcs = {"vcs": "git", "commit_id": "7921be1", "requested_revision": "main"}
    direct = {"url": "https://git.example/a.git", "vcs_info": vcs, "subdirectory": "python"}
    site.add("a", "1.0", requested=True, direct_url=direct)
    (found,) = carried(site, catalogue).wanted
    assert found.asks == ("a @ git+https://git.example/a.git@7921be1#subdirectory=python",)


def test_an_archive_is_asked_for_by_its_address(site: Site, catalogue: Catalogue) -> None:
    url = "https://files.example/a-1.0-py3-none-any.whl"
    site.add("a", "1.0", requested=True, direct_url={"url": url, "archive_info": {}})
    (found,) = carried(site, catalogue).wanted
    assert found.asks == (f"a @ {url}",)


def test_ones_own_project_is_listed_and_what_it_requires_goes_along(site: Site, catalogue: Catalogue) -> None:
    direct = {"url": "file:///home/u/my%20project", "dir_info": {"editable": True}}
    site.add("mine", "0.1", "numpy", requested=True, direct_url=direct)
    site.add("numpy", "2.2.0")
    assert wanted(site, catalogue) == {"numpy": "2.2.0"}
    assert carried(site, catalogue).notes == (
        PackageNote(
            "local",
            "mine comes from /home/u/my project: install it afterwards with"
            " `uv pip install --no-deps -e '/home/u/my project'`",
        ),
    )
