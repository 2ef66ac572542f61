"""Cards are known by the names that drivers and listings give them."""

from __future__ import annotations

import pytest

from torchenv.catalogue import resources

CATALOGUE = resources.catalogue()


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("NVIDIA GeForce RTX 5070 Ti Laptop GPU", "12.0"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "12.0"),
        ("NVIDIA GB10", "12.1"),
        ("NVIDIA Thor", "11.0"),
        ("NVIDIA GB300", "10.3"),
        ("NVIDIA B200", "10.0"),
        ("NVIDIA H100 80GB HBM3", "9.0"),
        ("NVIDIA GH200 480GB", "9.0"),
        ("NVIDIA RTX 6000 Ada Generation", "8.9"),
        ("NVIDIA RTX 4000 SFF Ada Generation", "8.9"),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", "8.9"),
        ("NVIDIA L40S-48Q", "8.9"),
        ("Orin (nvgpu)", "8.7"),
        ("NVIDIA GeForce RTX 3060 Laptop GPU", "8.6"),
        ("NVIDIA GeForce RTX 2050", "8.6"),
        ("NVIDIA RTX A6000", "8.6"),
        ("NVIDIA A10G", "8.6"),
        ("NVIDIA A100-SXM4-80GB", "8.0"),
        ("GRID A100D-80C", "8.0"),
        ("NVIDIA A100-SXM4-80GB MIG 3g.40gb", "8.0"),
        ("Quadro RTX 6000", "7.5"),
        ("NVIDIA TITAN RTX", "7.5"),
        ("GRID T4-16C", "7.5"),
        ("Tesla V100-SXM2-32GB", "7.0"),
        ("NVIDIA TITAN V", "7.0"),
        ("NVIDIA GeForce GTX 1080 Ti", "6.1"),
        ("NVIDIA TITAN X (Pascal)", "6.1"),
        ("NVIDIA TITAN Xp", "6.1"),
        ("Tesla P100-PCIE-16GB", "6.0"),
        ("GeForce GTX TITAN X", "5.2"),
        ("GeForce GTX 780", "3.5"),
        ("GeForce GTX 780 Ti", "3.5"),
        ("GeForce GTX TITAN Black", "3.5"),
        ("Tesla K80", "3.7"),
    ],
)
def test_a_nvidia_card_is_known_by_its_name(name: str, capability: str) -> None:
    assert str(CATALOGUE.find_capability(name)) == capability


@pytest.mark.parametrize(
    "name", ["NVIDIA Graphics Device", "GeForce GT 240", "NVIDIA H1000", "NVIDIA A1000X"]
)
def test_part_of_a_word_is_no_match(name: str) -> None:
    assert CATALOGUE.find_capability(name) is None


@pytest.mark.parametrize(
    ("name", "gfx"),
    [
        ("AMD Radeon RX 7900 XTX", "gfx1100"),
        ("Navi 31 [Radeon RX 7900 XT/7900 XTX/7900 GRE/7900M]", "gfx1100"),
        ("AMD Radeon RX 9060 XT", "gfx1200"),
        ("AMD Radeon(TM) 8060S Graphics", "gfx1151"),
        ("AMD Radeon 780M Graphics", "gfx1103"),
        ("Raphael", "gfx1036"),
        ("AMD Instinct MI300X", "gfx942"),
        ("AMD Instinct MI250X/MI250", "gfx90a"),
        ("AMD Instinct MI60 / MI50", "gfx906"),
        ("Vega 20 [Radeon Pro VII/Radeon Instinct MI50 32GB]", "gfx906"),
        ("AMD Radeon VII", "gfx906"),
    ],
)
def test_an_amd_card_is_known_by_its_name(name: str, gfx: str) -> None:
    assert CATALOGUE.find_gfx(name) == gfx


def test_a_name_that_all_integrated_graphics_share_tells_nothing() -> None:
    assert CATALOGUE.find_gfx("AMD Radeon Graphics") is None
