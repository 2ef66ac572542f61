"""An address is kept apart from its login, and says where each backend lies."""

from __future__ import annotations

import pytest

from torchenv.errors import InputError
from torchenv.system.addresses import Login, TorchIndex, join_login, mask_logins, refuse_login, split_login


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("see https://user:secret@mirror.example/whl now", "see https://mirror.example/whl now"),
        ("https://user:p@ss@mirror.example/whl", "https://mirror.example/whl"),
        ("https://token@mirror.example/", "https://mirror.example/"),
        ("https://mirror.example/a@b/whl", "https://mirror.example/a@b/whl"),
        ("https://mirror.example/whl?token=abc&x=1", "https://mirror.example/whl?token=****&x=1"),
        ("git+ssh://git@host.example/r.git", "git+ssh://git@host.example/r.git"),
        ("git+https://user:secret@host.example/r.git@v1", "git+https://host.example/r.git@v1"),
    ],
)
def test_no_login_is_shown(text: str, shown: str) -> None:
    assert mask_logins(text) == shown


def test_a_login_is_split_off_and_put_back_for_programs() -> None:
    address, login = split_login("https://user:p%40ss@mirror.example/whl")
    assert (address, login) == ("https://mirror.example/whl", Login("user", "p@ss"))
    assert join_login(address, Login("user", "p@ss")) == "https://user:p%40ss@mirror.example/whl"
    assert split_login(address) == (address, None)


def test_a_login_in_a_file_is_refused_with_the_remedy() -> None:
    with pytest.raises(InputError) as caught:
        refuse_login("https://user:secret@mirror.example/whl", "torchenv.toml: index.torch")
    assert str(caught.value) == "torchenv.toml: index.torch holds a login: `https://mirror.example/whl`"
    assert caught.value.hint == "remove it from the address, then store it in ~/.netrc or in keyring"


def test_the_backend_stands_where_the_address_says() -> None:
    assert TorchIndex("https://mirror.example/whl").at("cu132") == "https://mirror.example/whl/cu132"
    assert TorchIndex("https://mirror.example/whl").at("") == "https://mirror.example/whl"
    devpi = TorchIndex("https://devpi.example/{backend}/+simple")
    assert (devpi.at("cu132"), devpi.at("")) == ("https://devpi.example/cu132/+simple", None)
    table = TorchIndex(by_backend={"cpu": "https://nexus.example/torch-cpu/simple"})
    assert (table.at("cpu"), table.at("cu132")) == ("https://nexus.example/torch-cpu/simple", None)
