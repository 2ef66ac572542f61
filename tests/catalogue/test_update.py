"""What the indexes correct is written into the user's own catalogue, and is then what holds."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
import tomlkit
from tests.catalogue.test_check import CATALOGUE, DOCUMENT, ROOT, SERVED, fetching

from torchenv.actions.catalogue import check
from torchenv.actions.update_catalogue import corrections, learn, write
from torchenv.catalogue.document import parse
from torchenv.catalogue.resources import lay_over
from torchenv.index.http import Missing
from torchenv.system.addresses import TorchIndex
from torchenv.system.documents import Table

OTHERWISE = {
    **SERVED,
    "cu132/torch": [
        "torch-2.15.0+cu132-cp311-cp311-manylinux_2_28_x86_64.whl",
        "torch-2.15.0+cu132-cp314-cp314t-manylinux_2_28_x86_64.whl",
        "torch-2.15.0+cu132-cp315-cp315-manylinux_2_28_x86_64.whl",
        "torch-2.15.0+cu132-cp311-cp311-manylinux_2_28_aarch64.whl",
        "torch-2.16.0+cu132-cp312-cp312-manylinux_2_28_x86_64.whl",
    ],
    "cu132/torchaudio": ["torchaudio-2.11.1+cu132-py3-none-manylinux_2_28_x86_64.whl"],
    "cpu/torchaudio": [],
}


def corrected() -> dict[str, object]:
    """Learn from an index that serves otherwise."""
    return corrections(CATALOGUE, check(CATALOGUE, fetching(OTHERWISE), TorchIndex(ROOT)))


def test_only_what_the_index_itself_shows_is_corrected() -> None:
    assert corrected() == {
        "schema": 1,
        "release": [
            {
                "version": "2.15.0",
                "backend": [
                    {
                        "tag": "cu132",
                        "platforms": ["linux-aarch64", "linux-x86_64"],
                        "pythons": ["3.11", "3.14t", "3.15"],
                    }
                ],
                "companion": [{"name": "torchaudio", "backends": ["cu132"], "missing": ["cpu"]}],
            }
        ],
    }


def test_an_index_that_agrees_corrects_nothing() -> None:
    assert corrections(CATALOGUE, check(CATALOGUE, fetching(SERVED), TorchIndex(ROOT))) == {}


def test_what_was_written_holds_and_leaves_nothing_to_correct(tmp_path: Path) -> None:
    path = tmp_path / "settings" / "catalogue.toml"
    write(path, corrected())
    text = path.read_text("utf-8")
    assert text.startswith("# What PyTorch's indexes serve,")
    own = Table.from_toml(text, "own").raw()
    packaged = Table.from_toml(DOCUMENT, "catalogue.toml").raw()
    merged = parse(Table(lay_over(packaged, own), "merged"))
    assert corrections(merged, check(merged, fetching(OTHERWISE), TorchIndex(ROOT))) == {}


def test_entries_of_the_users_own_stay() -> None:
    before = tomlkit.parse('schema = 1\n[[release]]\nversion = "2.15.0"\ndate = "2026-10-29"\n').unwrap()
    (release,) = lay_over(before, corrected())["release"]
    assert release["date"] == "2026-10-29"
    assert release["backend"][0]["tag"] == "cu132"


# A new patch release.

PATCHED = {
    **SERVED,
    "cu132/torch": [
        *SERVED["cu132/torch"],
        "torch-2.15.1+cu132-cp311-cp311-manylinux_2_28_x86_64.whl",
        "torch-2.15.1+cu132-cp314-cp314t-manylinux_2_28_x86_64.whl",
        "torch-2.15.1+cu140-cp311-cp311-manylinux_2_28_x86_64.whl",
    ],
    "cu132/torchvision": [
        *SERVED["cu132/torchvision"],
        "torchvision-0.29.3+cu132-py3-none-manylinux_2_28_x86_64.whl",
    ],
}


def fetch_with_metadata(url: str) -> str | Missing:
    if url.endswith("torchvision-0.29.3+cu132-py3-none-manylinux_2_28_x86_64.whl.metadata"):
        return (
            "Metadata-Version: 2.4\nName: torchvision\nRequires-Dist: numpy\nRequires-Dist: torch==2.15.1\n"
        )
    return Missing(403) if url.endswith(".metadata") else fetching(PATCHED)(url)


def test_a_new_patch_release_on_known_backends_is_taken_with_its_companion() -> None:
    before = Table.from_toml(DOCUMENT, "catalogue.toml").raw()
    news = learn(before, fetch_with_metadata, TorchIndex(ROOT), today="2026-12-01")
    merged = parse(Table(lay_over(before, news.entries), "merged"))
    new = next(release for release in merged.releases if str(release.version) == "2.15.1")
    assert [backend.tag for backend in new.backends] == ["cu132"]
    assert new.backends[0].platforms == {"linux-x86_64"}
    assert {name: str(companion.version) for name, companion in new.companions.items()} == {
        "torchvision": "0.29.3"
    }
    assert [difference.code for difference in news.settled] == ["release-new"]
    # A backend that no release of the line has needs more than an index tells.
    assert [(difference.code, difference.backend) for difference in news.open] == [("backend-new", "cu140")]


def test_a_new_line_is_left_to_a_newer_torchenv() -> None:
    before = Table.from_toml(DOCUMENT, "catalogue.toml").raw()
    news = learn(before, fetching(OTHERWISE), TorchIndex(ROOT), today="2026-12-01")
    assert [str(difference.torch) for difference in news.open] == ["2.16.0"]
    assert news.entries == corrected()


OWN = """\
# mine
schema = 1  # the first

[[release]]  # soon
version = "2.15.0"
date = "2026-10-29"  # as announced

[[release.backend]]
tag = "cu132"
# of our build
platforms = ["manylinux_2_28_x86_64"]  # only this

[names]  # ours
"""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_file_of_the_users_own_is_changed_in_place(tmp_path: Path, end: str) -> None:
    kept, link, other = tmp_path / "kept.toml", tmp_path / "own.toml", tmp_path / "own.toml.new"
    text = OWN.replace("\n", end)
    kept.write_text(text, newline="")
    kept.chmod(0o600)
    link.symlink_to(kept)
    other.write_text("unrelated")
    wanted = lay_over(tomllib.loads(OWN), corrected())
    write(link, wanted)
    written = kept.read_bytes().decode()
    assert tomllib.loads(written) == wanted
    assert [part for part in text.split(end) if "#" in part and part not in written.split(end)] in (
        [],
        ['platforms = ["manylinux_2_28_x86_64"]  # only this'],
    )
    assert written.count("#") == text.count("#")
    assert link.readlink() == kept
    assert kept.stat().st_mode & 0o777 == 0o600
    assert other.read_text() == "unrelated"
    assert sorted(tmp_path.iterdir()) == [kept, link, other]
