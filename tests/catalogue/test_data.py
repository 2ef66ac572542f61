"""The packaged catalogue holds together, and says what is known of the releases."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.version import Version

from torchenv.catalogue import resources
from torchenv.catalogue.builds import Backend, Cuda, Rocm
from torchenv.catalogue.releases import Release
from torchenv.host.model import Capability, Host

CATALOGUE = resources.catalogue()
DATA = Path(resources.__file__).parent / "data"
RELEASES = {str(each.version): each for each in CATALOGUE.releases}
HOSTS = sorted((Path(__file__).parents[1] / "data" / "hosts").glob("*.json"))
BACKENDS = [
    pytest.param(release, backend, id=f"{release.version}-{backend.tag}")
    for release in CATALOGUE.releases
    for backend in release.backends
]


def backend(release: str, tag: str) -> Backend:
    found = RELEASES[release].backend(tag)
    assert found is not None
    return found


def cuda(release: str, tag: str) -> Cuda:
    needs = backend(release, tag).needs
    assert isinstance(needs, Cuda)
    return needs


def gfx(release: str, tag: str) -> frozenset[str]:
    needs = backend(release, tag).needs
    assert isinstance(needs, Rocm)
    return needs.gfx


def capability(text: str) -> Capability:
    found = Capability.parse(text)
    assert found is not None
    return found


def test_releases_from_2_8_to_2_15_are_listed_newest_first() -> None:
    assert [str(release.version) for release in CATALOGUE.releases] == [
        *("2.15.0", "2.14.1", "2.14.0", "2.13.0", "2.12.1", "2.12.0"),
        *("2.11.0", "2.10.0", "2.9.1", "2.9.0", "2.8.0"),
    ]


@pytest.mark.parametrize("release", CATALOGUE.releases, ids=lambda package: str(package.version))
def test_what_a_release_takes_first_is_one_of_its_builds(release: Release) -> None:
    assert set(release.defaults) == {"nvidia", "amd", "intel"}
    for vendor, tag in release.defaults.items():
        taken = release.backend(tag)
        assert taken is not None
        assert taken.vendor == vendor
        assert next(backend for backend in release.backends if backend.vendor == vendor) == taken


@pytest.mark.parametrize("release", CATALOGUE.releases, ids=lambda package: str(package.version))
def test_the_builds_on_the_package_index_are_builds_of_the_release(release: Release) -> None:
    assert set(release.package_index) == {"linux-x86_64", "linux-aarch64", "windows-x86_64", "darwin-arm64"}
    for platform, tag in release.package_index.items():
        on_index = release.backend(tag)
        assert on_index is not None
        assert platform in on_index.platforms
    assert set(release.download_mib) <= set(release.package_index)


@pytest.mark.parametrize("release", CATALOGUE.releases, ids=lambda package: str(package.version))
def test_companions_are_told_of_builds_that_exist(release: Release) -> None:
    tags = {backend.tag for backend in release.backends}
    assert set(release.companions) == {"torchvision", "torchaudio"}
    for companion in release.companions.values():
        known = companion.backends or frozenset()
        assert known | companion.missing <= tags
        assert not known & companion.missing


@pytest.mark.parametrize("release", CATALOGUE.releases, ids=lambda package: str(package.version))
def test_every_python_of_a_release_meets_what_its_metadata_requires(release: Release) -> None:
    assert all(release.requires_python.contains(python.rstrip("t")) for python in release.pythons)


@pytest.mark.parametrize(("release", "each"), BACKENDS)
def test_a_build_is_told_whole(release: Release, each: Backend) -> None:
    assert each.local == each.tag
    assert each.platforms
    assert release.pythons_of(each, "linux-x86_64")
    assert each.source
    match each.needs:
        case Cuda() as needs:
            assert each.tag == f"cu{needs.version.major}{needs.version.minor}"
            assert needs.floor.name == f"cuda{needs.version.major}"
            assert needs.paired is not None
            assert needs.paired >= needs.floor.by_system["linux"]
            assert set(needs.codes) == {name.rpartition("-")[2] for name in each.platforms}
        case Rocm(gfx=targets):
            assert targets
        case _:
            assert each.tag == each.needs.__class__.__name__.lower()


def test_every_code_is_a_capability_that_some_card_of_its_processor_has() -> None:
    for release in CATALOGUE.releases:
        for backend in release.backends:
            if isinstance(backend.needs, Cuda):
                for processor, codes in backend.needs.codes.items():
                    assert set(codes) <= set(CATALOGUE.capabilities[f"linux-{processor}"])


def test_every_product_name_belongs_to_a_card_that_can_exist() -> None:
    known = {part for platform in CATALOGUE.capabilities.values() for part in platform}
    assert set(CATALOGUE.nvidia_names.values()) <= known


@pytest.mark.parametrize(
    ("code", "device", "runs"),
    [
        ("8.6", "8.9", True),
        ("10.0", "10.3", True),
        ("12.0", "12.1", True),
        ("8.6", "8.0", False),
        ("8.0", "9.0", False),
        ("8.0", "8.7", False),
        ("10.0", "10.1", False),
        ("11.0", "10.1", True),
        ("10.1", "11.0", True),
        ("6.0", "6.2", False),
        ("5.3", "5.3", True),
    ],
)
def test_before_cuda_13_2_code_runs_on_the_devices_that_torch_names(
    code: str, device: str, *, runs: bool
) -> None:
    rule = cuda("2.14.1", "cu130").rule
    assert rule.runs(capability(code), capability(device)) is runs


def test_orin_is_refused_by_cu130_and_taken_by_cu132() -> None:
    orin = capability("8.7")
    assert not cuda("2.14.1", "cu130").serves(orin, "linux-aarch64")
    assert cuda("2.14.1", "cu132").serves(orin, "linux-aarch64")


@pytest.mark.parametrize(
    ("release", "tag", "platform", "device", "serves"),
    [
        ("2.15.0", "cu132", "linux-x86_64", "8.9", True),
        ("2.15.0", "cu132", "linux-x86_64", "7.0", False),
        ("2.14.1", "cu130", "linux-x86_64", "6.1", False),
        ("2.14.1", "cu126", "linux-x86_64", "6.1", True),
        ("2.14.1", "cu126", "linux-x86_64", "12.0", False),
        ("2.14.1", "cu126", "windows-x86_64", "7.0", True),
        ("2.10.0", "cu128", "linux-x86_64", "7.0", True),
        ("2.11.0", "cu128", "linux-x86_64", "7.0", False),
        ("2.15.0", "cu132", "linux-aarch64", "7.5", False),
        ("2.15.0", "cu132", "linux-aarch64", "12.1", True),
        ("2.15.0", "cu132", "linux-aarch64", "11.0", True),
        ("2.14.1", "cu126", "linux-x86_64", "3.5", False),
    ],
)
def test_a_build_serves_the_cards_that_it_has_code_for(
    release: str, tag: str, platform: str, device: str, *, serves: bool
) -> None:
    assert cuda(release, tag).serves(capability(device), platform) is serves


def test_2_15_lost_what_2_14_served_last() -> None:
    new, old = RELEASES["2.15.0"], RELEASES["2.14.1"]
    assert {backend.tag for backend in old.backends} - {backend.tag for backend in new.backends} == {
        "cu126",
        "cu130",
        "rocm7.2",
    }
    assert "3.10" in old.pythons
    assert "3.10" not in new.pythons
    assert (str(old.macos.mps), str(new.macos.mps)) == ("14.0", "15.0")


def test_gfx906_is_in_rocm7_2_of_2_14_and_not_in_rocm7_14() -> None:
    assert "gfx906" in gfx("2.14.1", "rocm7.2")
    assert "gfx906" not in gfx("2.14.1", "rocm7.14")
    assert "gfx906" not in gfx("2.15.0", "rocm7.14")


def test_floors_hold_for_every_cuda_of_a_major() -> None:
    assert str(cuda("2.15.0", "cu134").floor.by_system["linux"]) == "580"
    assert str(cuda("2.14.1", "cu126").floor.by_system["windows"]) == "528.33"
    assert "tegra" not in cuda("2.14.1", "cu126").floor.by_system
    assert str(cuda("2.15.0", "cu134").paired) == "615"


def test_torchaudio_has_no_cu132_build_before_2_15() -> None:
    assert RELEASES["2.14.1"].companions["torchaudio"].exists("cu132") is False
    assert RELEASES["2.14.1"].companions["torchaudio"].exists("cu130") is True
    assert RELEASES["2.14.1"].companions["torchaudio"].exists("rocm7.14") is None
    assert RELEASES["2.15.0"].companions["torchaudio"].exists("cu132") is True
    assert RELEASES["2.15.0"].companions["torchaudio"].exists("rocm10.0") is None


def test_python_3_15_of_2_14_is_on_the_index_of_pytorch_and_not_for_macos() -> None:
    release = RELEASES["2.14.1"]
    assert "3.15" not in release.pythons
    assert "3.15t" in release.pythons_of(backend("2.14.1", "cu130"), "linux-x86_64")
    assert "3.15" in release.pythons_of(backend("2.14.1", "cpu"), "linux-x86_64")
    assert "3.15" not in release.pythons_of(backend("2.14.1", "cpu"), "darwin-arm64")


def test_the_names_of_triton_follow_their_renaming_in_2_10() -> None:
    assert backend("2.9.1", "rocm6.4").family == ("pytorch-triton-rocm",)
    assert backend("2.10.0", "rocm7.1").family == ("triton-rocm",)
    assert backend("2.9.1", "xpu").family == ("pytorch-triton-xpu",)
    assert backend("2.15.0", "xpu").family == ("triton-xpu",)
    assert backend("2.15.0", "cu132").family == ()


def test_the_rocm_libraries_come_with_the_index_from_rocm7_14_on() -> None:
    family = backend("2.14.1", "rocm7.14").family
    assert family[:4] == ("triton-rocm", "rocm", "rocm-sdk-core", "rocm-sdk-libraries")
    assert sum(name.startswith("rocm-sdk-device-gfx") for name in family) == 25


def test_the_libraries_of_2_12_are_those_of_its_wheels() -> None:
    releases = tomllib.loads((DATA / "catalogue.toml").read_text("utf-8"))["release"]
    (release,) = [item for item in releases if item["version"] == "2.12.0"]
    assert (release["cudnn"], release["nccl"]) == ("9.20.0.48", "2.29.7")


def test_the_longest_paths_are_those_measured_in_the_wheels() -> None:
    measured = {name: backends.longest_path for name, backends in RELEASES.items() if backends.longest_path}
    assert measured == {
        "2.15.0": 126,
        "2.14.1": 121,
        "2.14.0": 121,
        "2.13.0": 167,
        **dict.fromkeys(("2.12.1", "2.12.0", "2.11.0", "2.10.0", "2.8.0"), 119),
    }


@pytest.mark.parametrize(
    ("device", "driver", "drives"),
    [
        ("3.5", "470.256.02", True),
        ("3.5", "550.54.15", False),
        ("7.0", "580.65.06", True),
        ("7.0", "590.44.01", False),
        ("8.9", "615.71.09", True),
        ("12.0", "570.86.16", True),
        ("12.0", "550.54.15", False),
    ],
)
def test_a_generation_knows_the_drivers_that_drive_it(device: str, driver: str, *, drives: bool) -> None:
    generation = CATALOGUE.generation(capability(device))
    assert generation is not None
    assert generation.drives(Version(driver)) is drives


@pytest.mark.parametrize(
    ("driver", "served_by"),
    [
        # Volta and Blackwell may both be there, and no build of 2.14 has code for both.
        ("580.95.05", []),
        ("595.45.04", ["cu130", "cu132"]),
        ("550.54.15", ["cu126"]),
    ],
)
def test_a_card_without_a_name_is_served_where_all_that_its_driver_drives_are(
    driver: str, served_by: list[str]
) -> None:
    possible = [
        item
        for item in CATALOGUE.capabilities["linux-x86_64"]
        if (generation := CATALOGUE.generation(item)) and generation.drives(Version(driver))
    ]
    assert [
        backend.tag
        for backend in RELEASES["2.14.1"].backends
        if isinstance(backend.needs, Cuda)
        and all(backend.needs.serves(card, "linux-x86_64") for card in possible)
        and Version(driver) >= backend.needs.floor.by_system["linux"]
    ] == served_by


def test_jetson_and_gb10_are_on_aarch64_alone() -> None:
    only = set(CATALOGUE.capabilities["linux-aarch64"]) - set(CATALOGUE.capabilities["linux-x86_64"])
    assert {str(name) for name in only} == {"5.3", "6.2", "7.2", "8.7", "10.1", "11.0", "12.1"}


def test_the_reason_for_an_intel_mac_names_system_processor_and_release() -> None:
    assert CATALOGUE.no_wheels["darwin-x86_64"] == (
        "PyTorch has published no wheel for macOS x86_64 since 2.2.2"
    )


@pytest.mark.parametrize("path", HOSTS, ids=lambda path: path.stem)
def test_a_recorded_host_has_a_platform_and_cards_that_the_catalogue_knows(path: Path) -> None:
    host = Host.from_json(path.read_text(encoding="utf-8"), path.name)
    assert host.platform in {*RELEASES["2.15.0"].package_index, *CATALOGUE.no_wheels}
    for device in host.nvidia.devices:
        named = CATALOGUE.find_capability(device.name)
        if device.name == "NVIDIA Graphics Device":
            assert named is None
        elif device.compute_capability is None:
            assert named is not None
        else:
            assert named == device.compute_capability
    for card in host.amd.devices:
        assert CATALOGUE.find_gfx(card.name) in {card.gfx, None}
