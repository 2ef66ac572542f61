"""A user's own catalogue adds what the packaged one does not know yet, by data alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchenv.catalogue import resources
from torchenv.catalogue.builds import Cuda
from torchenv.errors import InputError
from torchenv.host.model import Capability
from torchenv.profile.packaged import list_profile_names, read_packaged_profile

NEXT = """
schema = 1
compiled = "2027-01-04"

[driver-floor.cuda14]
linux = "650"
windows = "650"

[driver-paired]
"14.0" = "650.10"

[[generation]]
name = "Turing"
below = "8.0"
last-driver = "640"

[names.nvidia]
"12.0" = ["RTX 5090 D"]
"13.0" = ["RTX 6090"]

[[release]]
version = "2.16.0"
date = "2026-12-22"
requires-python = ">=3.11"
pythons = ["3.12", "3.13"]
glibc = "2.28"
macos = { installs = "14.0", mps = "15.0" }
default = { nvidia = "cu140" }
package-index = { linux-x86_64 = "cu140" }
[[release.backend]]
tag = "cu140"
kind = "cuda"
cuda = "14.0"
driver-floor = "cuda14"
codes = { x86_64 = ["8.0", "13.0"] }
local = "cu140"
platforms = ["linux-x86_64"]
certainty = "notes"
source = "made up"
"""


def test_a_new_release_with_a_new_cuda_needs_no_code(tmp_path: Path) -> None:
    own = tmp_path / "catalogue.toml"
    own.write_text(NEXT, encoding="utf-8")
    catalogue = resources.catalogue(own)

    (newest,) = catalogue.matching("latest")
    assert str(newest.version) == "2.16.0"
    build = newest.backend("cu140")
    assert build is not None
    assert isinstance(build.needs, Cuda)
    assert str(build.needs.floor.by_system["linux"]) == "650"
    assert str(build.needs.paired) == "650.10"
    assert build.needs.serves(Capability(13, 0), "linux-x86_64")
    assert not build.needs.serves(Capability(8, 7), "linux-aarch64")
    assert catalogue.compiled == "2027-01-04"
    assert [str(neighbour.version) for neighbour in catalogue.neighbours(newest)] == ["2.15.0"]


def test_names_are_added_to_the_packaged_ones(tmp_path: Path) -> None:
    own = tmp_path / "catalogue.toml"
    own.write_text(NEXT, encoding="utf-8")
    catalogue = resources.catalogue(own)
    assert catalogue.find_capability("NVIDIA GeForce RTX 6090") == (13, 0)
    assert catalogue.find_capability("NVIDIA GeForce RTX 5080") == (12, 0)


def test_generations_are_put_in_their_order(tmp_path: Path) -> None:
    own = tmp_path / "catalogue.toml"
    own.write_text(NEXT, encoding="utf-8")
    generation = resources.catalogue(own).generation(Capability(7, 5))
    assert generation is not None
    assert (generation.name, str(generation.last)) == ("Turing", "640")


def test_a_backend_is_changed_in_the_keys_that_are_written(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(
        'schema = 1\n[[release]]\nversion = "2.15.0"\n[[release.backend]]\ntag = "cpu"\n'
        'platforms = ["linux-x86_64", "windows-arm64"]\n'
        '[[release.companion]]\nname = "torchaudio"\nmissing = ["rocm7.14"]\n',
        encoding="utf-8",
    )
    (release,) = resources.catalogue(own).matching("2.15.0")
    (packaged,) = resources.catalogue().matching("2.15.0")
    changed, before = release.backend("cpu"), packaged.backend("cpu")
    assert changed is not None
    assert before is not None
    assert changed.platforms == {"linux-x86_64", "windows-arm64"}
    assert changed.source == before.source
    assert release.companions["torchaudio"].exists("rocm7.14") is False
    assert release.companions["torchaudio"].exists("cu132") is True
    assert release.backend("cu132") == packaged.backend("cu132")


def test_a_mistyped_key_names_the_users_file(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('schema = 1\n[[release]]\nversion = "2.15.0"\nglibcc = "2.28"\n', encoding="utf-8")
    with pytest.raises(InputError) as caught:
        resources.catalogue(own)
    assert caught.value.message == (
        f"{own}, over the packaged catalogue.toml: release[0].glibcc is not a setting"
    )
    assert caught.value.hint == "did you mean `glibc`?"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("schema = 2\n", ": schema: is 2, and this torchenv reads 1"),
        ("[[release]]\n", ": schema is missing"),
        ("schema = \n", ": not valid TOML: Invalid value (at line 1, column 10)"),
    ],
)
def test_what_is_no_catalogue_is_refused(tmp_path: Path, text: str, message: str) -> None:
    own = tmp_path / "own.toml"
    own.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        resources.catalogue(own)
    assert caught.value.message == f"{own}{message}"


def test_a_file_that_is_not_there_is_the_users_to_mend(tmp_path: Path) -> None:
    own = tmp_path / "gone.toml"
    with pytest.raises(InputError, match=r"the catalogue .*gone\.toml cannot be read"):
        resources.catalogue(own)


def test_a_profile_is_given_with_where_it_came_from(tmp_path: Path) -> None:
    (tmp_path / "train.toml").write_text("schema = 1\n", encoding="utf-8")
    (tmp_path / "inference.toml").write_text("schema = 1\n", encoding="utf-8")
    assert list_profile_names(tmp_path) == ("inference", "train")
    assert read_packaged_profile("train", tmp_path) == ("schema = 1\n", "profiles/train.toml")
    with pytest.raises(InputError) as caught:
        read_packaged_profile("trian", tmp_path)
    assert (caught.value.message, caught.value.hint) == (
        "profile `trian` not found",
        "did you mean `train`?",
    )


MOVED = 'schema = 1\n[index]\nroot = "https://elsewhere.example/whl"\n'


def test_a_catalogue_that_came_with_a_project_moves_no_index(tmp_path: Path) -> None:
    own = tmp_path / "catalogue.toml"
    own.write_text(MOVED, "utf-8")
    assert resources.catalogue(own).index_root == "https://elsewhere.example/whl"
    with pytest.raises(InputError) as caught:
        resources.catalogue(own, is_named=False)
    assert caught.value.message.startswith(f"{own}: index.root moves PyTorch's index from ")
    assert "to `https://elsewhere.example/whl`" in caught.value.message
    assert caught.value.hint == f"remove `[index]` from it, or trust it by name: `--catalogue {own}`"


def test_a_catalogue_holds_no_login(tmp_path: Path) -> None:
    own = tmp_path / "catalogue.toml"
    own.write_text(MOVED.replace("elsewhere", "user:secret@elsewhere"), "utf-8")
    with pytest.raises(InputError) as caught:
        resources.catalogue(own)
    assert "secret" not in caught.value.message
    assert caught.value.message.startswith(f"{own}: index.root holds a login")
