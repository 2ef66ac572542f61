"""Ten layouts in which projects ask for torch, each with the profile that comes out."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchenv.catalogue.releases import Catalogue
from torchenv.errors import InputError
from torchenv.packages.layouts import Proposal, read_layout
from torchenv.profile.model import Profile
from torchenv.render.profile import write_profile

LAYOUTS = Path(__file__).parents[1] / "data" / "layouts"
FILES = ("pyproject.toml", "pixi.toml", "environment.yml", "requirements.txt", "uv.lock")


def read_text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError:
        raise InputError(f"{path} cannot be read") from None


def propose(directory: Path, catalogue: Catalogue) -> tuple[str, Proposal]:
    name = next(name for name in FILES if (directory / name).is_file())
    return name, read_layout(name, directory, read_text, catalogue)


@pytest.mark.parametrize("layout", sorted(path.name for path in LAYOUTS.iterdir()))
def test_a_layout_gives_the_profile_beside_it(layout: str, catalogue: Catalogue) -> None:
    name, proposal = propose(LAYOUTS / layout, catalogue)
    text = write_profile(proposal, name)
    Profile.from_toml(text, "torchenv.toml")
    assert text == (LAYOUTS / layout / "torchenv.toml").read_text("utf-8")


def test_no_login_gets_into_a_profile(catalogue: Catalogue) -> None:
    for layout in LAYOUTS.iterdir():
        name, proposal = propose(layout, catalogue)
        assert "secret" not in write_profile(proposal, name)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("setup.py", "", "`setup.py` is not a supported layout"),
        ("environment.yml", "a: [", "environment.yml: not valid YAML: "),
        ("environment.yml", "name: x", "environment.yml: lists no dependencies"),
        ("pyproject.toml", "[", "pyproject.toml: not valid TOML: "),
    ],
)
def test_what_is_no_layout_is_refused(name: str, text: str, said: str, catalogue: Catalogue) -> None:
    with pytest.raises(InputError) as caught:
        read_layout(name, Path("/p"), lambda _: text, catalogue)
    assert str(caught.value).startswith(said)
