"""What a project says of where a package comes from is obeyed, or refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchenv.catalogue.releases import Catalogue
from torchenv.errors import InputError, NothingSuits
from torchenv.packages import CarriedPackages, list_lines, of_file, of_profile, refuse_conflicts
from torchenv.profile.model import Packages


def read_text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError:
        raise InputError(f"{path} cannot be read") from None


def write(directory: Path, **texts: str) -> None:
    for name, text in texts.items():
        path = directory / name.replace("__", "/") / "pyproject.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def of(directory: Path, text: str, catalogue: Catalogue, **more: object) -> CarriedPackages:
    (directory / "pyproject.toml").write_text(text, "utf-8")
    return of_file("pyproject.toml", directory, read_text, catalogue, **more)  # type: ignore[arg-type]


def project(*dependencies: str, sources: str = "", more: str = "") -> str:
    listed = ", ".join(f'"{line}"' for line in dependencies)
    return f'[project]\nname = "mine"\ndependencies = [{listed}]\n{more}\n[tool.uv.sources]\n{sources}\n'


def asked(found: CarriedPackages) -> list[str]:
    return [requirement.requirement for requirement in found.requirements]


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ('{ git = "https://git.example/c.git", rev = "v1" }', "core-lib @ git+https://git.example/c.git@v1"),
        (
            '{ git = "https://git.example/c.git", subdirectory = "py" }',
            "core-lib @ git+https://git.example/c.git#subdirectory=py",
        ),
        ('{ url = "https://files.example/c.tar.gz" }', "core-lib @ https://files.example/c.tar.gz"),
    ],
)
def test_an_address_is_obeyed(tmp_path: Path, source: str, line: str, catalogue: Catalogue) -> None:
    found = of(tmp_path, project("core-lib>=1", sources=f"Core_Lib = {source}"), catalogue)
    assert asked(found) == [line]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            '{ index = "corp" }',
            "pyproject.toml: tool.uv.sources.core-lib: core-lib comes from the index `corp`",
        ),
        (
            "{ workspace = true }",
            "pyproject.toml: tool.uv.sources.core-lib: no member of the workspace is called `core-lib`",
        ),
        (
            '{ path = "../core" }',
            "pyproject.toml: tool.uv.sources.core-lib: core-lib is a folder that cannot be read: ",
        ),
        (
            '{ path = "core-1.0-py3-none-any.whl" }',
            "pyproject.toml: tool.uv.sources.core-lib: core-1.0-py3-none-any.whl is a file of one machine",
        ),
    ],
)
def test_what_cannot_be_obeyed_is_refused_by_name(
    tmp_path: Path, source: str, said: str, catalogue: Catalogue
) -> None:
    with pytest.raises(InputError) as caught:
        of(tmp_path, project("core-lib>=1", sources=f"core-lib = {source}"), catalogue)
    assert str(caught.value).startswith(said)


def test_an_index_that_the_profile_names_is_obeyed(tmp_path: Path, catalogue: Catalogue) -> None:
    text = project("corp-lib>=1", sources='corp-lib = { index = "corp" }')
    assert asked(of(tmp_path, text, catalogue, private=("corp-*",))) == ["corp-lib>=1"]


def test_torchs_family_is_left_to_the_plan_and_that_is_said(tmp_path: Path, catalogue: Catalogue) -> None:
    text = project("torch>=2.14", "torchvision", sources='torch = { index = "cu134" }')
    found = of(tmp_path, text, catalogue)
    assert [requirement.requirement for requirement in found.family] == ["torch>=2.14", "torchvision"]
    assert [note.message for note in found.notes] == [
        "pyproject.toml: tool.uv.sources.torch is ignored: torch comes from the plan's index"
    ]


def test_members_of_a_workspace_are_local_and_bring_their_dependencies(
    tmp_path: Path, catalogue: Catalogue
) -> None:
    root = project(
        "core-lib[fast]", sources="core-lib = { workspace = true }\nextra-lib = { workspace = true }"
    )
    core = (
        '[project]\nname = "core-lib"\ndependencies = ["numpy", "torch==2.1", "extra-lib"]\n'
        '[project.optional-dependencies]\nfast = ["numba"]\n'
    )
    write(tmp_path, packages__core=core, packages__extra=project("tqdm").replace("mine", "extra-lib"))
    found = of(tmp_path, root + '[tool.uv.workspace]\nmembers = ["packages/*"]\n', catalogue)
    assert [(folder.name, folder.path) for folder in found.local] == [
        ("core-lib", "packages/core"),
        ("extra-lib", "packages/extra"),
    ]
    assert asked(found) == ["numpy", "numba", "tqdm"]
    # Which torch it is, the plan decides: the pin is no demand on it.
    assert [requirement.requirement for requirement in found.family] == ["torch"]


def test_an_editable_folder_of_the_profile_is_local(tmp_path: Path, catalogue: Catalogue) -> None:
    write(tmp_path, pkg=project("numpy", "torch==2.1"))
    found = of_profile(Packages(editable=("pkg",)), "torchenv.toml", tmp_path, read_text, catalogue)
    assert [(folder.name, folder.path, folder.editable) for folder in found.local] == [("mine", "pkg", True)]
    assert asked(found) == ["numpy"]


def test_bounds_of_a_project_are_obeyed(tmp_path: Path, catalogue: Catalogue) -> None:
    more = 'requires-python = ">=3.13"'
    uv = '[tool.uv]\nconstraint-dependencies = ["numpy<3", "torch<2.15"]\n'
    uv += 'override-dependencies = ["tqdm==4"]\n'
    found = of(tmp_path, project("numpy", more=more) + uv, catalogue)
    assert [bound.requirement for bound in found.constraints] == ["numpy<3"]
    assert [bound.requirement for bound in found.family_constraints] == ["torch<2.15"]
    assert [override.requirement for override in found.overrides] == ["tqdm==4"]
    with pytest.raises(NothingSuits) as caught:
        refuse_conflicts(found, ["torch==2.14.1"], platform="linux-x86_64", python="3.12")
    assert str(caught.value) == "pyproject.toml requires Python >=3.13, and the plan has 3.12"
    with pytest.raises(NothingSuits, match=r"wants torch<2.15, and the plan has torch==2.15.0"):
        refuse_conflicts(found, ["torch==2.15.0"], platform="linux-x86_64", python="3.13")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ('[tool.uv]\nexclude-newer = "2026-01-01"\n', "tool.uv.exclude-newer is not supported"),
        (
            '[tool.pixi.dependencies]\npython = "3.12.*"\ncuda-nvcc = "*"\n',
            "tool.pixi.dependencies asks conda's channels for cuda-nvcc",
        ),
    ],
)
def test_what_has_no_place_in_a_lock_is_refused(
    tmp_path: Path, more: str, said: str, catalogue: Catalogue
) -> None:
    with pytest.raises(InputError) as caught:
        of(tmp_path, project("numpy") + more, catalogue)
    assert str(caught.value) == f"pyproject.toml: {said}"


def test_pixis_packages_of_the_index_are_asked_for(tmp_path: Path, catalogue: Catalogue) -> None:
    more = '[tool.pixi.pypi-dependencies]\nrich = "13.*"\nboto3 = { version = ">=1", extras = ["crt"] }\n'
    assert asked(of(tmp_path, project("numpy") + more, catalogue)) == ["numpy", "rich==13.*", "boto3[crt]>=1"]


def test_the_files_of_setuptools_are_read(tmp_path: Path, catalogue: Catalogue) -> None:
    (tmp_path / "base.txt").write_text("numpy\n", "utf-8")
    text = (
        '[project]\nname = "mine"\ndynamic = ["dependencies"]\n'
        '[tool.setuptools.dynamic]\ndependencies = { file = "base.txt" }\n'
    )
    assert asked(of(tmp_path, text, catalogue)) == ["numpy"]


def test_the_order_and_the_spaces_of_a_file_are_no_part_of_what_it_asks_for(
    tmp_path: Path, catalogue: Catalogue
) -> None:
    one = of(tmp_path, project("tqdm", "numpy  >=2"), catalogue)
    other = of(tmp_path, project("numpy >=2", "tqdm") + "[tool.ruff]\nline-length = 80\n", catalogue)
    assert list_lines(one) == list_lines(other) == ["numpy >=2", "tqdm"]
