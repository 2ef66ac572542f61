"""A project and a lock give what they ask for beside torch's family."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchenv.catalogue.releases import Catalogue
from torchenv.errors import InputError
from torchenv.packages import CarriedPackages, CarriedRequirement, PackageNote, of_file, of_profile
from torchenv.profile.model import Packages

PROJECT = """\
[project]
name = "mine"
version = "1"
dependencies = ["numpy>=2", "torch>=2.14"]
[project.optional-dependencies]
plots = ["matplotlib"]
all = ["mine[plots,all]", "tqdm"]
[dependency-groups]
Test = ["pytest", { include-group = "lint" }]
lint = ["ruff"]
[tool.uv.sources]
numpy = { git = "https://git.example/numpy.git" }
"""

LOCK = """\
lock-version = "1.0"
created-by = "somebody"
{packages}
[[packages]]
name = "a"
vcs = {{ type = "git", url = "https://git.example/a.git", commit-id = "7921be1537ea" }}
[[packages]]
name = "mine"
directory = {{ path = "." }}
"""


def lock(**more: str) -> str:
    """A lock of ordinary packages, each a wheel, with `more` lines for some of them."""
    versions = {
        "lightning": "2.5.0",
        "numpy": "2.2.0",
        "colorama": "0.4.6",
        "torch": "2.14.1+cu130",
        "torchvision": "0.29.1+cu130",
        "nvidia-cudnn-cu13": "9.24.0.43",
    }
    packages = (
        f'[[packages]]\nname = "{name}"\nversion = "{version}"\n{more.get(name, "")}\n'
        f'wheels = [{{ url = "https://files.example/{name.replace("-", "_")}-{version}-py3-none-any.whl",'
        ' hashes = { sha256 = "ab" } }]'
        for name, version in versions.items()
    )
    return LOCK.format(packages="\n".join(packages))


def read(name: str, text: str, catalogue: Catalogue) -> CarriedPackages:
    return of_file(name, Path("/p"), lambda _: text, catalogue)


def test_a_project_gives_its_dependencies_and_no_extras(catalogue: Catalogue) -> None:
    found = read("pyproject.toml", PROJECT, catalogue)
    assert found.requirements == (
        CarriedRequirement("numpy @ git+https://git.example/numpy.git", "pyproject.toml"),
    )
    assert found.family == (CarriedRequirement("torch>=2.14", "pyproject.toml"),)
    assert found.notes == ()


def test_extras_and_dependency_groups_are_taken_along_by_name(catalogue: Catalogue) -> None:
    found = read("pyproject.toml[test, all]", PROJECT, catalogue)
    assert [requirement.requirement for requirement in found.requirements] == [
        "numpy @ git+https://git.example/numpy.git",
        "pytest",
        "ruff",
        "matplotlib",
        "tqdm",
    ]


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (PROJECT, "pyproject.toml has no extra or dependency group `plot`", "did you mean `plots`?"),
        (
            '[project]\nname = "mine"\ndynamic = ["dependencies"]\n',
            "pyproject.toml: its dependencies are known only to its build tool",
            "name the file that its build tool reads them from, such as requirements.txt",
        ),
        (
            "[tool.poetry.dependencies]\nnumpy = '*'\n",
            "pyproject.toml: [tool.poetry] dependencies are not supported",
            "run `torchenv init --from pyproject.toml`, or export them: `poetry export -o requirements.txt`",
        ),
        (
            "[project]\ndependencies = 3\n",
            "pyproject.toml: project.dependencies: must be a list, not a whole number",
            None,
        ),
    ],
)
def test_a_project_that_does_not_say_is_refused(
    text: str, message: str, hint: str | None, catalogue: Catalogue
) -> None:
    with pytest.raises(InputError) as caught:
        read("pyproject.toml[plot]", text, catalogue)
    assert (caught.value.message, caught.value.hint) == (message, hint)


def test_groups_that_include_each_other_are_refused(catalogue: Catalogue) -> None:
    text = '[dependency-groups]\na = [{ include-group = "b" }]\nb = [{ include-group = "a" }]\n'
    with pytest.raises(InputError, match=r"^pyproject.toml: dependency-groups.a: "):
        read("pyproject.toml[a]", text, catalogue)


def test_a_lock_gives_its_topmost_packages_at_their_versions(catalogue: Catalogue) -> None:
    text = lock(
        lightning='dependencies = [{ name = "numpy" }]', colorama="marker = \"sys_platform == 'win32'\""
    )
    found = read("pylock.toml", text, catalogue)
    assert {wanted.name: wanted.asks for wanted in found.wanted} == {
        "lightning": ("lightning==2.5.0", "lightning>=2.5.0", "lightning"),
        "colorama": (
            'colorama==0.4.6 ; sys_platform == "win32"',
            'colorama>=0.4.6 ; sys_platform == "win32"',
            'colorama ; sys_platform == "win32"',
        ),
        "a": ("a @ git+https://git.example/a.git@7921be1537ea",),
    }
    assert found.family == (CarriedRequirement("torchvision", "pylock.toml"),)
    assert found.notes == (
        PackageNote("local", "pylock.toml: mine is a folder of one machine: install it afterwards by hand"),
    )


def test_a_lock_that_does_not_say_who_needs_whom_gives_all(catalogue: Catalogue) -> None:
    found = read("pylock.train.toml", lock(), catalogue)
    assert [wanted.name for wanted in found.wanted] == ["lightning", "numpy", "colorama", "a"]


def test_a_profile_asks_by_name_and_by_files_beside_it(catalogue: Catalogue) -> None:
    packages = Packages(
        requirements=("lightning>=2.5", "torchaudio"), constraints=("numpy<3",), files=("needs.txt",)
    )
    found = of_profile(packages, "torchenv.toml", Path("/p"), lambda path: f"tqdm # {path}", catalogue)
    assert found.requirements == (
        CarriedRequirement("lightning>=2.5", "torchenv.toml"),
        CarriedRequirement("tqdm", "needs.txt:1"),
    )
    assert found.constraints == (CarriedRequirement("numpy<3", "torchenv.toml"),)
    assert found.family == (CarriedRequirement("torchaudio", "torchenv.toml"),)
