"""A lock is text that says what lasts; what cannot be trusted is refused at the door."""

import tomllib

import pytest

from torchenv.errors import InputError
from torchenv.lockfile.lock import Lock, LockedFile, write_lock

SHA = "a" * 64
NUMPY = "https://mirror.example/simple/numpy-2.3.0-py3-none-any.whl"
TORCH = "https://mirror.example/whl/cu132/torch-2.15.0%2Bcu132-cp312-cp312-win_amd64.whl"
TEXT = f"""\
lock-version = "1.0"
requires-python = ">=3.12"
created-by = "torchenv"

[[packages]]
name = "numpy"
version = "2.3.0"
index = "https://mirror.example/simple"
wheels = [
    {{ url = "{NUMPY}", upload-time = 2026-09-01T00:00:00Z, size = 9, hashes = {{ sha256 = "{SHA}" }} }},
]

[[packages]]
name = "torch"
version = "2.15.0+cu132"
index = "https://mirror.example/whl/cu132"
wheels = [
    {{ url = "{TORCH}", hashes = {{ sha256 = "{SHA}" }} }},
]
"""

INDEXES = {
    "numpy": "https://mirror.example/simple",
    "torch": "https://mirror.example/whl/cu132",
}


def test_a_lock_says_which_versions_from_which_index_with_torchs_label() -> None:
    lock = Lock.parse(TEXT, "pylock.ada.toml")
    assert lock.versions == {"numpy": "2.3.0", "torch": "2.15.0+cu132"}
    assert lock.indexes == ("https://mirror.example/simple", "https://mirror.example/whl/cu132")
    assert lock.packages[1].files == (
        LockedFile(
            "torch-2.15.0+cu132-cp312-cp312-win_amd64.whl",
            TORCH,
            SHA,
        ),
    )


def test_the_digest_is_that_of_the_text() -> None:
    lock = Lock.parse(TEXT, "pylock.toml")
    assert lock.digest.startswith("sha256:")
    assert lock.digest == Lock.parse(TEXT, "elsewhere.toml").digest
    assert lock.digest != Lock.parse(TEXT.replace("2.3.0", "2.3.1"), "pylock.toml").digest


def test_writing_what_was_read_gives_the_same_bytes() -> None:
    assert write_lock(tomllib.loads(TEXT), index_of=INDEXES) == TEXT


def test_the_order_in_which_a_tool_gives_packages_and_keys_does_not_show() -> None:
    raw = tomllib.loads(TEXT)
    shuffled = {**raw, "packages": [dict(reversed(package.items())) for package in raw["packages"][::-1]]}
    assert write_lock(shuffled, index_of=INDEXES) == TEXT


def test_the_index_is_written_in_and_only_for_what_an_index_gave() -> None:
    raw = tomllib.loads(TEXT)
    for package in raw["packages"]:
        del package["index"]
    commit = {"type": "git", "url": "https://git.example/x", "commit-id": "0" * 40}
    raw["packages"].append({"name": "x", "vcs": commit})
    text = write_lock(raw, index_of={**INDEXES, "x": "https://mirror.example/simple"})
    assert text == TEXT + (
        '\n[[packages]]\nname = "x"\nvcs = { type = "git", url = "https://git.example/x",'
        f' commit-id = "{"0" * 40}" }}\n'
    )
    assert Lock.parse(text, "pylock.toml").packages[2].files == ()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            'lock-version = "1.0"',
            'lock-version = "2.0"',
            "pylock.toml: not a valid lock: pylock version 2.0 is not supported",
        ),
        (
            'version = "2.3.0"',
            "version = [",
            "pylock.toml: not valid TOML: Invalid value (at line 8, column 1)",
        ),
        (
            f'sha256 = "{SHA}"',
            'md5 = "0"',
            "pylock.toml: numpy: numpy-2.3.0-py3-none-any.whl has no sha256",
        ),
        (
            "https://mirror.example/simple/",
            "https://ada:secret@mirror.example/",
            "pylock.toml: numpy: an address in the lock holds a password",
        ),
        (
            "https://mirror.example/simple/",
            "https://token@mirror.example/",
            "pylock.toml: numpy: an address in the lock holds a password",
        ),
    ],
)
def test_what_cannot_be_trusted_is_refused(old: str, new: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        Lock.parse(TEXT.replace(old, new, 1), "pylock.toml")
    assert str(caught.value) == message


def test_a_folder_of_one_machine_is_no_lock() -> None:
    text = 'lock-version = "1.0"\ncreated-by = "x"\n[[packages]]\nname = "mine"\n'
    with pytest.raises(InputError) as caught:
        Lock.parse(text + 'directory = { path = "../mine" }\n', "pylock.toml")
    assert str(caught.value) == "pylock.toml: mine is a folder of one machine"
    assert caught.value.hint == "leave it out of the lock and install it by hand afterwards"


def test_a_lock_with_the_packages_of_another_is_still_judged_by_its_own_head() -> None:
    head, mark, packages = TEXT.partition("\n[[packages]]")
    assert Lock.parse(TEXT, "it").packages == Lock.parse(f"{head}\n{mark}{packages}", "it").packages
    with pytest.raises(InputError, match="it: not a valid lock"):
        Lock.parse(head.replace("lock-version", "lock-versions") + mark + packages, "it")
    with pytest.raises(InputError, match="it: not valid TOML"):
        Lock.parse(f"{head}\n=\n{mark}{packages}", "it")
