"""A requirements file is read for what it asks for; what would steer an installer is listed as ignored."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchenv.catalogue.releases import Catalogue
from torchenv.errors import InputError
from torchenv.packages import CarriedPackages, CarriedRequirement, PackageNote, of_file


def read(texts: dict[str, str], catalogue: Catalogue, name: str = "requirements.txt") -> CarriedPackages:
    def read_text(path: Path) -> str:
        try:
            return texts[str(path.relative_to("/p"))]
        except (KeyError, ValueError):
            raise InputError(f"{path} does not exist") from None

    return of_file(name, Path("/p"), read_text, catalogue)


def test_requirements_keep_their_extras_and_markers_and_lose_comments(catalogue: Catalogue) -> None:
    text = (
        "# what we train with\n"
        "numpy>=2,<3   # not 3 yet\n"
        "\n"
        "lightning[extra]~=2.5 ; python_version < '3.14'\n"
        "tqdm \\\n"
        "  >=4.60\n"
    )
    assert read({"requirements.txt": text}, catalogue).requirements == (
        CarriedRequirement("numpy>=2,<3", "requirements.txt:2"),
        CarriedRequirement("lightning[extra]~=2.5 ; python_version < '3.14'", "requirements.txt:4"),
        CarriedRequirement("tqdm   >=4.60", "requirements.txt:5"),
    )


def test_files_named_in_it_are_read_from_beside_it_and_each_once(catalogue: Catalogue) -> None:
    texts = {
        "needs/all.txt": "-r base.txt\n--requirement=more/extra.txt\n-c bounds.txt\n",
        "needs/base.txt": "numpy\n",
        "needs/more/extra.txt": "-rbase.txt\n-r ../all.txt\n",
        "needs/more/base.txt": "tqdm\n",
        "needs/bounds.txt": "numpy<3\n-r more.txt\n",
        "needs/more.txt": "tqdm<5\n",
    }
    found = of_file(
        "needs/all.txt",
        Path("/p"),
        lambda path: texts[str(path.relative_to("/p"))],
        catalogue,
    )
    assert found.requirements == (
        CarriedRequirement("numpy", "base.txt:1"),
        CarriedRequirement("tqdm", "base.txt:1"),
    )
    assert found.constraints == (
        CarriedRequirement("numpy<3", "bounds.txt:1"),
        CarriedRequirement("tqdm<5", "more.txt:1"),
    )


def test_options_that_steer_an_installer_are_listed_without_their_login(catalogue: Catalogue) -> None:
    text = (
        "--index-url https://u:secret@mirror.example/simple\n"
        "--extra-index-url=https://mirror.example/whl/cu126\n"
        "-f wheels\n--pre\nnumpy\n"
    )
    found = read({"requirements.txt": text}, catalogue)
    assert found.requirements == (CarriedRequirement("numpy", "requirements.txt:5"),)
    assert [note.message for note in found.notes] == [
        "requirements.txt:1: --index-url https://mirror.example/simple is ignored",
        "requirements.txt:2: --extra-index-url=https://mirror.example/whl/cu126 is ignored",
        "requirements.txt:3: -f wheels is ignored",
        "requirements.txt:4: --pre is ignored",
    ]


def test_hashes_are_dropped_and_that_is_said_once(catalogue: Catalogue) -> None:
    text = "numpy==2.3.0 \\\n    --hash=sha256:ab \\\n    --hash=sha256:cd\ntqdm==4.67 --hash=sha256:ef\n"
    found = read({"requirements.txt": text}, catalogue)
    assert [requirement.requirement for requirement in found.requirements] == ["numpy==2.3.0", "tqdm==4.67"]
    assert found.notes == (
        PackageNote(
            "ignored", "requirements.txt: its hashes are not checked: the new lock has hashes of its own"
        ),
    )


def test_addresses_get_the_name_that_they_say(catalogue: Catalogue) -> None:
    text = (
        "git+https://git.example/a.git@v1#egg=a&subdirectory=python\n"
        "-e git+https://git.example/b.git@v2#egg=b\n"
        "https://files.example/c_d-1.0-py3-none-any.whl\n"
        "e @ https://files.example/e.tar.gz\n"
    )
    assert [
        requirement.requirement for requirement in read({"requirements.txt": text}, catalogue).requirements
    ] == [
        "a @ git+https://git.example/a.git@v1#subdirectory=python",
        "b @ git+https://git.example/b.git@v2",
        "c-d @ https://files.example/c_d-1.0-py3-none-any.whl",
        "e @ https://files.example/e.tar.gz",
    ]


@pytest.mark.parametrize("line", ["-e .", "./wheels/mine-1.0-py3-none-any.whl", "--editable=../other"])
def test_paths_of_this_machine_are_listed_with_what_to_do(line: str, catalogue: Catalogue) -> None:
    what = line.replace("--editable=", "-e ")
    found = read({"requirements.txt": line}, catalogue)
    assert found.requirements == ()
    assert found.notes == (
        PackageNote(
            "local",
            f"requirements.txt:1: {what} is of this machine alone:"
            f" install it afterwards with `uv pip install --no-deps {what}`",
        ),
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("numpy=2", "requirements.txt:1: `numpy=2` is not a requirement: Expected semicolon"),
        ("-r https://x.example/r.txt", "requirements.txt:1: https://x.example/r.txt is not fetched"),
        ("numpy==${V}", "requirements.txt:1: `numpy==${V}` names a variable, which is not looked up"),
        (
            "https://x.example/a.zip",
            "requirements.txt:1: https://x.example/a.zip does not say which package it is",
        ),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(line: str, message: str, catalogue: Catalogue) -> None:
    with pytest.raises(InputError) as caught:
        read({"requirements.txt": line}, catalogue)
    assert caught.value.message.startswith(message)


def test_torchs_family_is_kept_apart_and_its_libraries_are_left_to_torch(catalogue: Catalogue) -> None:
    text = "torch==2.14.1\ntorchvision[x]\nnvidia-cudnn-cu13==9.24.0.43\nnumpy\n"
    found = read({"requirements.txt": text}, catalogue)
    assert found.requirements == (CarriedRequirement("numpy", "requirements.txt:4"),)
    assert found.family == (
        CarriedRequirement("torch==2.14.1", "requirements.txt:1"),
        CarriedRequirement("torchvision[x]", "requirements.txt:2"),
    )
    assert [note.message for note in found.notes] == [
        "requirements.txt:2: the extras of torchvision[x] are left out: list what they bring",
        "requirements.txt:3: nvidia-cudnn-cu13==9.24.0.43 is left to torch, which brings it",
    ]


def test_a_conda_file_is_refused_with_the_way_out(catalogue: Catalogue) -> None:
    with pytest.raises(InputError) as caught:
        of_file("environment.yml", Path("/p"), lambda _: "", catalogue)
    assert str(caught.value) == "/p/environment.yml: a conda environment file is not supported"
    assert "torchenv init --from environment.yml" in (caught.value.hint or "")
    assert caught.value.hint == (
        "run `torchenv init --from environment.yml`, or carry the environment itself with `--like ENV`"
    )


FREEZE = """\
certifi @ file:///home/conda/feedstock_root/build_artifacts/certifi_1725278078093/work/certifi
exceptiongroup @ file:///croot/exceptiongroup_1706031385326/work
numpy==2.3.0
PyYAML @ file:///D:/bld/pyyaml_1692737288530/work
torch @ file:///opt/conda/conda-bld/pytorch_1728945381029/work
"""


def test_what_conda_built_is_asked_for_by_name_and_torch_is_left_to_the_plan(catalogue: Catalogue) -> None:
    found = read({"requirements.txt": FREEZE}, catalogue)
    asked = [requirement.requirement for requirement in found.requirements]
    assert asked == ["certifi", "exceptiongroup", "numpy==2.3.0", "PyYAML"]
    assert [requirement.requirement for requirement in found.family] == ["torch"]
    assert [note.message for note in found.notes if note.code == "any-version"] == [
        f"requirements.txt:{line}: {name} was built by conda, in a folder that is gone: {taken}"
        for line, name, taken in (
            (1, "certifi", "any version is taken"),
            (2, "exceptiongroup", "any version is taken"),
            (4, "PyYAML", "any version is taken"),
            (5, "torch", "the plan chooses its version"),
        )
    ]


def test_a_folder_of_one_person_is_never_asked_of_the_index_by_its_name(catalogue: Catalogue) -> None:
    with pytest.raises(InputError) as caught:
        read({"requirements.txt": "core-lib @ file:///home/me/core-lib\n"}, catalogue)
    assert str(caught.value).startswith("requirements.txt:1: core-lib is a folder that cannot be read: ")


def test_an_editable_folder_asks_for_its_dependencies_without_its_torch_pin(catalogue: Catalogue) -> None:
    own = '[project]\nname = "Mine"\ndependencies = ["torch==2.0", "tqdm"]\n'
    found = read({"requirements.txt": "-e .\nnumpy\n", "pyproject.toml": own}, catalogue)
    assert [(folder.name, folder.path, folder.editable) for folder in found.local] == [("mine", ".", True)]
    assert [requirement.requirement for requirement in found.requirements] == ["numpy", "tqdm"]
    assert [requirement.requirement for requirement in found.family] == ["torch"]
    assert "pyproject.toml: torch==2.0 is left to the plan" in [note.message for note in found.notes]
