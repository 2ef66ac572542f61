"""A name that becomes part of a file's name is held to its grammar in every document that holds one."""

from __future__ import annotations

import pytest

from torchenv.errors import InputError
from torchenv.lockfile.lockset import LockSet
from torchenv.profile.model import Profile
from torchenv.system.documents import Table
from torchenv.system.names import check_environment_name, is_target_name, parse_target_name
from torchenv.workspace.manifest import Manifest

ASTRAY = ["/../../home/.config/uv/uv", "..", "a/b", "a\\b", "A", "", "a.b", "a\n", "-a", "x" * 64]


@pytest.mark.parametrize("name", ASTRAY)
def test_a_name_that_leads_out_of_the_directory_names_no_target(name: str) -> None:
    assert not is_target_name(name)
    with pytest.raises(InputError) as caught:
        parse_target_name(Table({"name": name}, "torchenv.toml"), "name")
    assert str(caught.value) == f"torchenv.toml: name: `{name}` is not a name"


@pytest.mark.parametrize("name", ["/../../home/.config/uv/uv", "a/b", "..", "a."])
def test_a_profile_a_tie_and_a_manifest_refuse_it_alike(name: str) -> None:
    target = f"[[target]]\nname = {name!r}\nplatform = 'linux-x86_64'\npython = '3.12'\n"
    with pytest.raises(InputError, match=r"target\[0\].name: `.*` is not a name"):
        Profile.from_toml(f"schema = 1\nname = 'x'\n{target}", "torchenv.toml")
    schema = LockSet(wanted={}, targets=()).to_toml()
    with pytest.raises(InputError, match=r"target\[0\].name: `.*` is not a name"):
        LockSet.from_toml(schema + target, "torchenv.lock.toml")
    environment = (
        f"schema = 1\nnext-number = 2\n[[environment]]\nnumber = 1\nname = {name!r}\nkind = 'built'\n"
        "state = 'ready'\npath = '/p'\ncreated = 2026-11-30T08:00:00Z\n"
        "[environment.python]\nversion = '3.12.1'\npath = '/python'\n"
    )
    with pytest.raises(InputError, match=r"environment\[0\].name: `.*` cannot name an environment"):
        Manifest.from_toml(environment, "manifest.toml")


def test_the_names_that_torchenv_makes_are_names() -> None:
    assert check_environment_name("2.15.0-cu132-py3.14t") == "2.15.0-cu132-py3.14t"
    assert is_target_name("cu132-windows-x86-64")
