"""Packages that were made for the old torch are found by what they require and by what their code names."""

from __future__ import annotations

from tests.support.installed import Site

from torchenv.catalogue.releases import Catalogue
from torchenv.environment.inspect import distributions
from torchenv.packages import (
    Bound,
    CannotFollow,
    CarriedPackages,
    find_bound_to_torch,
    following,
    of_environment,
)

PLANNED = {"torch": "2.15.0+cu132", "torchvision": "0.29.2+cu132"}
INDEX = "https://mirror.example/simple"


def needs(*libraries: str) -> bytes:
    # As a linker writes the names that a library needs: one after the other, each ended by a zero.
    names = b"\0".join(library.encode() for library in libraries)
    return b"\x7fELF\x02\x01\x01" + bytes(4096) + names + b"\0"


def bound(site: Site, planned: dict[str, str] = PLANNED) -> tuple[Bound, ...]:
    return find_bound_to_torch(distributions(site.installation), site.installation.torch, planned)


def followed(site: Site, catalogue: Catalogue, newer: dict[str, str | None]) -> CarriedPackages:
    carried = of_environment(distributions(site.installation), ".venv", catalogue)
    return following(carried, bound(site), newer, INDEX)


def test_a_package_that_requires_another_torch_is_found(site: Site) -> None:
    site.add_torch()
    site.add("xformers", "0.0.40", "torch==2.14.1", "numpy")
    site.add("lightning", "2.5.0", "torch<4.0,>=2.1", 'torchvision<0.20; extra == "old"')
    site.add("oldvision", "1.0", "torchvision<0.29.2")
    assert bound(site) == (
        Bound(name="oldvision", version="1.0", why="it requires torchvision<0.29.2"),
        Bound(name="xformers", version="0.0.40", why="it requires torch==2.14.1"),
    )


def test_a_package_whose_code_names_torchs_libraries_is_found(site: Site) -> None:
    site.add_torch()
    code = {"flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so": needs("libc10.so", "libtorch_cuda.so")}
    site.add("flash-attn", "2.8.3", "torch", files=code)
    site.add("winext", "1.0", files={"winext/_C.cp312-win_amd64.pyd": needs("KERNEL32.dll", "c10.dll")})
    assert bound(site) == (
        Bound(
            name="flash-attn",
            version="2.8.3",
            why="flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so was compiled against torch 2.14.1+cu130",
        ),
        Bound(
            name="winext",
            version="1.0",
            why="_C.cp312-win_amd64.pyd was compiled against torch 2.14.1+cu130",
        ),
    )


def test_a_name_at_the_end_of_a_large_file_is_found(site: Site) -> None:
    # Where patchelf puts them when it repairs a wheel.
    site.add_torch()
    site.add("big", "1.0", files={"big/_C.so": bytes(40 << 20) + needs("libtorch.so")})
    assert [package.name for package in bound(site)] == ["big"]


def test_other_code_and_texts_that_name_torch_are_no_trouble(site: Site) -> None:
    site.add_torch()
    files = {
        "bitsandbytes/libbitsandbytes_cuda130.so": needs("libcudart.so.13", "libmytorch.so"),
        "bitsandbytes/notes.txt": b"it does not need libtorch.so",
        "bitsandbytes/empty.so": b"",
    }
    site.add("bitsandbytes", "0.49", "torch<3,>=2.3", files=files)
    assert bound(site) == ()


def test_code_for_another_patch_of_the_same_line_follows(site: Site) -> None:
    site.add_torch("2.14.0")
    site.add("ext", "1.0", files={"ext/_C.so": needs("libtorch.so")})
    assert bound(site, {"torch": "2.14.1+cu130"}) == ()


def test_what_has_something_newer_is_asked_for_at_that(site: Site, catalogue: Catalogue) -> None:
    site.add_torch()
    site.add("xformers", "0.0.40", "torch==2.14.1", requested=True)
    found = followed(site, catalogue, {"xformers": "0.0.41"})
    assert [wanted.asks for wanted in found.wanted] == [("xformers>0.0.40",)]
    assert found.cannot_follow == ()


def test_what_has_nothing_newer_is_listed_and_not_asked_for(site: Site, catalogue: Catalogue) -> None:
    site.add_torch()
    site.add("numpy", "2.2.0", requested=True)
    site.add("xformers", "0.0.40", "torch==2.14.1", requested=True)
    site.add("flash-attn", "2.8.3", requested=True, files={"_C.so": needs("libc10.so")})
    found = followed(site, catalogue, {"xformers": None})
    assert [wanted.name for wanted in found.wanted] == ["numpy"]
    flash_attn, xformers = found.cannot_follow
    assert str(flash_attn) == (
        "flash-attn 2.8.3 cannot follow: _C.so was compiled against torch 2.14.1+cu130;"
        " no index was asked for a newer one"
    )
    assert str(xformers) == (
        "xformers 0.0.40 cannot follow: it requires torch==2.14.1;"
        " https://mirror.example/simple has nothing newer with a wheel that fits"
    )


def test_what_another_package_requires_is_listed_and_stays_its_business(
    site: Site, catalogue: Catalogue
) -> None:
    site.add_torch()
    site.add("mmdet", "3.3.0", "mmcv", requested=True)
    site.add("mmcv", "2.2.0", files={"mmcv/_ext.so": needs("libtorch.so")})
    found = followed(site, catalogue, {"mmcv": None})
    assert [wanted.name for wanted in found.wanted] == ["mmdet"]
    assert [item.name for item in found.cannot_follow] == ["mmcv"]


def test_an_extension_of_ones_own_is_listed_with_how_to_build_it_again(
    site: Site, catalogue: Catalogue
) -> None:
    site.add_torch()
    direct = {"url": "file:///home/u/kernels", "dir_info": {}}
    site.add("kernels", "0.1", requested=True, direct_url=direct, files={"k/_C.so": needs("libtorch.so")})
    assert followed(site, catalogue, {}).cannot_follow == (
        CannotFollow(
            name="kernels",
            version="0.1",
            why="_C.so was compiled against torch 2.14.1+cu130",
            exists="build it again in the new environment with"
            " `uv pip install --no-deps --no-build-isolation /home/u/kernels`",
        ),
    )
