"""The catalogue is compared with what an index serves, and each difference is said."""

from __future__ import annotations

import pytest

from torchenv.actions.catalogue import check
from torchenv.catalogue.document import parse
from torchenv.errors import ToolFailed
from torchenv.index.http import Missing
from torchenv.index.pages import Fetch
from torchenv.system.addresses import TorchIndex
from torchenv.system.documents import Table

ROOT = "https://mirror.example/whl"
DOCUMENT = """
schema = 1
compiled = "2026-11-30"
[index]
root = "https://mirror.example/whl"
[driver-floor.cuda13]
linux = "580"
[[kernel-rule]]
[no-wheels]
windows-arm64 = "left out on purpose"

[[release]]
version = "2.15.0"
date = "2026-10-28"
requires-python = ">=3.11"
pythons = ["3.11", "3.14t"]
glibc = "2.28"
macos = { installs = "14.0", mps = "15.0" }
[[release.companion]]
name = "torchvision"
version = "0.29.2"
[[release.companion]]
name = "torchaudio"
version = "2.11.1"
backends = ["cpu"]
missing = ["cu132"]
[[release.backend]]
tag = "cu132"
kind = "cuda"
cuda = "13.2"
driver-floor = "cuda13"
codes = { x86_64 = ["7.5"] }
local = "cu132"
platforms = ["linux-x86_64", "windows-x86_64"]
certainty = "wheel"
source = "made up"
[[release.backend]]
tag = "cpu"
kind = "cpu"
local = "cpu"
platforms = ["darwin-arm64", "linux-x86_64"]
certainty = "wheel"
source = "made up"
"""
CATALOGUE = parse(Table.from_toml(DOCUMENT, "catalogue.toml"))

# What an index serves that is as the catalogue says.
SERVED = {
    "cu132/torch": [
        f"torch-2.15.0+cu132-{abi}-{platform}.whl"
        for abi in ("cp311-cp311", "cp314-cp314t")
        for platform in ("manylinux_2_28_x86_64", "win_amd64")
    ],
    "cpu/torch": [
        "torch-2.15.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl",
        "torch-2.15.0+cpu-cp314-cp314t-manylinux_2_28_x86_64.whl",
        "torch-2.15.0-cp311-none-macosx_14_0_arm64.whl",
        "torch-2.15.0+cpu-cp311-cp311-win_arm64.whl",
    ],
    "cu132/torchvision": ["torchvision-0.29.2+cu132-py3-none-manylinux_2_28_x86_64.whl"],
    "cpu/torchvision": ["torchvision-0.29.2-py3-none-macosx_14_0_arm64.whl"],
    "cu132/torchaudio": ["torchaudio-2.2.0-cp311-cp311-manylinux1_x86_64.whl"],
    "cpu/torchaudio": ["torchaudio-2.11.1-py3-none-macosx_14_0_arm64.whl"],
}


def fetching(served: dict[str, list[str]], root: str = ROOT) -> Fetch:
    """Make up an index that serves these files."""
    pages = {f"{root}/{place}/": files for place, files in served.items()}

    def fetch(url: str) -> str | Missing:
        if url not in pages:
            return Missing(403)
        return "".join(f'<a href="{page}">{page}</a>' for page in pages[url])

    return fetch


def differences(served: dict[str, list[str]], root: str | None = None) -> list[str]:
    found = check(CATALOGUE, fetching(served, root or ROOT), TorchIndex(root) if root else None)
    return [f"{item.code}: {item}" for item in found]


def test_an_index_that_is_as_the_catalogue_says_gives_no_difference() -> None:
    assert differences(SERVED) == []


def test_a_mirror_is_asked_in_place_of_the_index() -> None:
    assert differences(SERVED, "https://other.example/torch") == []


def test_a_new_release_and_a_new_backend_are_seen() -> None:
    root_page = [
        "torch-2.16.0+cu136-cp312-cp312-win_amd64.whl",
        "torch-2.16.0-cp312-none-macosx_14_0_arm64.whl",
        "torch-2.15.0+rocm10.0-cp312-cp312-linux_x86_64.whl",
        "torch-2.17.0rc1+cu136-cp312-cp312-win_amd64.whl",
        "torch-2.1.0+cu118-cp310-cp310-win_amd64.whl",
    ]
    assert differences({**SERVED, "torch": root_page}) == [
        "release-new: torch 2.16.0: is on the index and not in the catalogue (cu136)",
        "backend-new: torch 2.15.0 (rocm10.0): is on the index and not in the catalogue",
    ]


def test_a_backend_that_is_gone_is_said_once() -> None:
    served = {place: files for place, files in SERVED.items() if not place.startswith("cu132")}
    assert differences(served) == [
        "backend-missing: torch 2.15.0 (cu132): is in the catalogue and not on the index",
    ]


def test_platforms_and_pythons_that_differ_are_said() -> None:
    files = [
        "torch-2.15.0+cu132-cp311-cp311-manylinux_2_28_x86_64.whl",
        "torch-2.15.0+cu132-cp315-cp315t-manylinux_2_28_x86_64.whl",
        "torch-2.15.0+cu132-cp311-cp311-manylinux_2_28_aarch64.whl",
    ]
    assert differences({**SERVED, "cu132/torch": files}) == [
        "platform-missing: torch 2.15.0 (cu132): has no wheel for windows-x86_64",
        "platform-new: torch 2.15.0 (cu132): has wheels for linux-aarch64, which is not listed",
        "python-missing: torch 2.15.0 (cu132): has no wheel for Python 3.14t on linux-x86_64",
        "python-new: torch 2.15.0 (cu132): has a wheel for Python 3.15t on linux-x86_64, which is not listed",
    ]


def test_companions_that_came_or_went_are_said() -> None:
    served = {
        **SERVED,
        "cu132/torchaudio": ["torchaudio-2.11.1+cu132-py3-none-manylinux_2_28_x86_64.whl"],
        "cpu/torchvision": [],
    }
    assert differences(served) == [
        (
            "companion-new: torch 2.15.0 (cu132): torchaudio 2.11.1 is on the index,"
            " and the catalogue says there is none"
        ),
        (
            "companion-missing: torch 2.15.0 (cpu): torchvision 0.29.2 is not on the index,"
            " and the catalogue lists it"
        ),
    ]


def test_what_the_catalogue_does_not_know_is_answered() -> None:
    unknown = parse(Table.from_toml(DOCUMENT.replace('missing = ["cu132"]', ""), "catalogue.toml"))

    def fetch(url: str) -> str | Missing:
        files = SERVED.get(url.removeprefix(f"{ROOT}/").rstrip("/"))
        return Missing(403) if files is None else "".join(f'<a href="{file}">x</a>' for file in files)

    assert [str(finding) for finding in check(unknown, fetch)] == [
        "torch 2.15.0 (cu132): torchaudio 2.11.1 is not on the index, and the catalogue does not know",
    ]


def test_an_index_out_of_reach_ends_the_check() -> None:
    def fetch(url: str) -> str | Missing:
        raise ToolFailed(f"the index at {url} cannot be reached: timed out")

    with pytest.raises(ToolFailed, match="cannot be reached"):
        check(CATALOGUE, fetch)
