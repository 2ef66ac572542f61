"""A team's lock with an address for each backend and an index of its own."""

from __future__ import annotations

import tomllib

from tests.support.index import Index
from tests.support.terminal import Terminal
from tests.support.wheels import Wheel
from tests.support.workshop import MINOR

PROFILE = """\
schema = 1
name = "team"
[torch]
version = "2.15"
[packages]
requirements = ["corp-train"]
[index]
packages = "{root}/simple"
[index.torch]
cpu = "{root}/whl/cpu"
[[index.private]]
url = "{root}/private"
packages = ["corp-*"]
[[target]]
name = "ci"
platform = "linux-x86_64"
python = "{minor}"
backend = "cpu"
"""


def test_a_table_and_a_private_index_are_locked_checked_and_synced(terminal: Terminal, index: Index) -> None:
    index.add("private", Wheel(name="corp-train", version="1.0", requires=("corp-base",)))
    index.add("private", Wheel(name="corp-base", version="1.0"))
    index.add("simple", Wheel(name="corp-base", version="66.6"))
    del terminal.environ["TORCHENV_TORCH_INDEX"], terminal.environ["TORCHENV_PACKAGE_INDEX"]
    text = PROFILE.replace("{root}", index.root).replace("{minor}", MINOR)
    (terminal.cwd / "torchenv.toml").write_text(text, "utf-8")
    locked = terminal.type("lock")
    assert locked.code == 0, locked.err
    lock = tomllib.loads((terminal.cwd / "pylock.ci.toml").read_text("utf-8"))
    found = {package["name"]: (package["version"], package["index"]) for package in lock["packages"]}
    assert found["torch"] == ("2.15.0+cpu", index.backend("cpu"))
    assert found["corp-base"] == ("1.0", f"{index.root}/private")
    assert terminal.type("lock", "--check").code == 0
    again = terminal.type("lock")
    assert again.code == 0, again.err
    # A mirror of the package index stands in place of that one alone.
    index.add("copy", *index.wheels("simple"))
    synced = terminal.type("sync", "ci", TORCHENV_PACKAGE_INDEX=f"{index.root}/copy")
    assert synced.code == 0, synced.err
