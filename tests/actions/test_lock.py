"""One set of locks for unlike machines: made anywhere, the same bytes, and it says when it has drifted."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace

import pytest
from packaging.pylock import Pylock, is_valid_pylock_path
from tests.support.index import Index
from tests.support.project import MINOR, Project
from tests.support.wheels import Wheel

from torchenv.lockfile.lock import Lock


def lock_of(team: Project, target: str) -> Lock:
    return Lock.parse(team.read(f"pylock.{target}.toml"), target)


def torch_of(team: Project) -> dict[str, str]:
    """The version of torch in the lock of each target."""
    names = (name.split(".")[1] for name in team.locks() if name.startswith("pylock"))
    return {name: lock_of(team, name).versions["torch"] for name in sorted(names)}


def test_every_target_is_locked_on_this_machine(team: Project) -> None:
    done = team.run("lock")
    assert done.code == 0, done.said
    assert torch_of(team) == {
        "ada": "2.15.0+cu132",
        "ci": "2.15.0+cpu",
        "mac": "2.15.0",
        "rocm7-14": "2.15.0+rocm7.14",
        "v100": "2.14.1+cu126",
        "windows": "2.15.0+cu132",
    }
    assert done.out == (
        "ada: torch 2.15.0+cu132, 8 packages, pylock.ada.toml\n"
        "v100: torch 2.14.1+cu126, 8 packages, pylock.v100.toml\n"
        "  cu126 is held at 2.14.x because torch 2.15.0 is not built for cu126\n"
        "rocm7-14: torch 2.15.0+rocm7.14, 9 packages, pylock.rocm7-14.toml\n"
        "ci: torch 2.15.0+cpu, 6 packages, pylock.ci.toml\n"
        "mac: torch 2.15.0, 6 packages, pylock.mac.toml\n"
        "windows: torch 2.15.0+cu132, 6 packages, pylock.windows.toml"
    )


def test_each_lock_is_valid_and_says_its_file_index_hash_and_size(team: Project) -> None:
    team.run("lock")
    for name in team.locks():
        if name == "torchenv.lock.toml":
            continue
        path = team.directory / name
        assert is_valid_pylock_path(path)
        pylock = Pylock.from_dict(tomllib.loads(path.read_text("utf-8")))
        for package in pylock.packages:
            assert package.index
            assert package.wheels
            for wheel in package.wheels:
                assert wheel.url
                assert wheel.hashes["sha256"]


def test_the_reason_why_a_target_is_held_back_is_in_its_files(team: Project) -> None:
    team.run("lock")
    why = ["cu126 is held at 2.14.x because torch 2.15.0 is not built for cu126"]
    about = tomllib.loads(team.read("pylock.v100.toml"))["tool"]["torchenv"]
    assert about == {"target": "v100", "torch": "2.14.1+cu126", "backend": "cu126", "because": why}
    tie = tomllib.loads(team.read("torchenv.lock.toml"))
    assert [item.get("because") for item in tie["target"]] == [None, why, None, None, None, None]


def test_whoever_locks_and_whenever_the_bytes_are_the_same(team: Project) -> None:
    team.run("lock")
    first = team.locks()
    other = Project(team.directory.parent / "somebody else's", team.index, team.environ)
    other.environ["UV_CACHE_DIR"] += "-of-another"
    variables = {
        "UV_EXTRA_INDEX_URL": f"{team.index.root}/whl/cpu",
        "PIP_CONSTRAINT": "/nowhere",
        "TZ": "Asia/Tokyo",
    }
    other.run("lock", **variables)
    assert other.locks() == first
    team.run("lock")
    assert team.locks() == first
    for name, content in first.items():
        assert str(team.directory.parent).encode() not in content, name


def test_what_was_locked_stays_when_the_index_has_something_newer(team: Project) -> None:
    team.run("lock")
    before = team.locks()
    team.index.add("simple", Wheel(name="numpy", version="2.4.0"), Wheel(name="filelock", version="3.21.0"))
    assert "nothing changed" in team.run("lock").out
    assert team.locks() == before

    shown = team.run("lock", "--upgrade", "numpy", "--dry-run")
    assert "  ~ numpy 2.3.0 -> 2.4.0\n" in shown.out
    assert "filelock" not in shown.out
    assert shown.out.endswith("nothing was written")
    assert team.locks() == before

    team.run("lock", "--upgrade", "numpy")
    assert lock_of(team, "ci").versions["numpy"] == "2.4.0"
    assert lock_of(team, "ci").versions["filelock"] == "3.20.0"
    team.run("lock", "--upgrade")
    assert lock_of(team, "ci").versions["filelock"] == "3.21.0"


def test_a_yanked_wheel_is_left_for_another(team: Project) -> None:
    team.run("lock")
    (numpy,) = (wheel for wheel in team.index.wheels("simple") if wheel.file_name.startswith("numpy-2.3.0"))
    team.index.add("simple", replace(numpy, yanked=True))
    team.environ["UV_CACHE_DIR"] += "-cold"
    assert "  ~ numpy 2.3.0 -> 2.2.0\n" in team.run("lock").out


def test_where_pytorchs_index_cannot_be_reached_the_hint_names_the_package_indexs_build(
    team: Project,
) -> None:
    team.environ["TORCHENV_TORCH_INDEX"] = "http://127.0.0.1:9/whl"
    done = team.run("lock")
    assert done.code == 4
    assert done.said.splitlines()[-2:] == [
        (
            "hint: check the network and the proxy, or name a mirror with TORCHENV_TORCH_INDEX and"
            " TORCHENV_PACKAGE_INDEX"
        ),
        'hint: give the target index = "packages" to take the package index\'s build',
    ]


def test_a_file_that_was_replaced_on_the_index_is_not_locked(team: Project) -> None:
    team.run("lock")
    before = team.locks()
    was = next(package for package in lock_of(team, "ci").packages if package.name == "filelock").files[0]
    other = Wheel(name="filelock", version="3.20.0", files={"filelock/__init__.py": "# other\n"})
    team.index.add("simple", other)
    team.environ["UV_CACHE_DIR"] += "-cold"
    done = team.run("lock")
    assert done.code == 4
    assert done.said.splitlines()[-2:] == [
        (
            f"error: target ada: filelock-3.20.0-py3-none-any.whl is not the file that was locked:"
            f" expected sha256 {was.sha256}, got {other.sha256}"
        ),
        (
            "hint: find out why the index replaced it before you trust it, then run"
            " `torchenv lock --upgrade filelock`"
        ),
    ]
    assert team.locks() == before
    assert team.run("lock", "--upgrade", "filelock").code == 0


def test_a_platform_without_wheels_is_marked_and_the_others_are_locked(team: Project) -> None:
    team.change("torchenv.toml", 'platform = "darwin-arm64"', 'platform = "darwin-x86_64"')
    done = team.run("lock")
    assert done.code == 0, done.said
    why = "PyTorch has published no wheel for macOS x86_64 since 2.2.2"
    assert f"mac: unsupported: {why}" in done.out.splitlines()
    assert "pylock.mac.toml" not in team.locks()
    assert tomllib.loads(team.read("torchenv.lock.toml"))["target"][4] == {
        "name": "mac",
        "platform": "darwin-x86_64",
        "python": MINOR,
        "unsupported": why,
    }
    assert team.run("lock", "--check").code == 0


def test_a_lock_of_a_target_that_is_gone_is_deleted(team: Project) -> None:
    team.run("lock")
    text = team.read("torchenv.toml")
    team.write("torchenv.toml", text[: text.index('[[target]]\nname = "windows"')])
    assert team.run("lock").out.endswith("windows: its lock is removed")
    assert "pylock.windows.toml" not in team.locks()


def test_a_companion_that_an_index_has_only_as_a_fossil_is_no_match(team: Project) -> None:
    # The cu132 index lists torchaudio, but only a wheel that is years old and has no label.
    team.index.remove("whl/cu132", "torchaudio")
    team.index.add("whl/cu132", Wheel(name="torchaudio", version="2.2.0", requires=("torch",)))
    team.change("torchenv.toml", '["torchvision"]', '["torchvision", "torchaudio"]')
    done = team.run("lock")
    assert done.code == 4
    (error,) = (line for line in done.said.splitlines() if line.startswith("error"))
    assert re.fullmatch(r"error: target (ada|windows): \S+/whl/cu132 has no torchaudio==2\.11\.1", error), (
        error
    )
    # The others are locked: what one index lacks stops only those that need it.
    assert sorted(torch_of(team)) == ["ci", "mac", "rocm7-14", "v100"]
    assert team.run("lock", "--check").out.splitlines() == [
        "target ada is not locked yet",
        "target windows is not locked yet",
    ]


def test_a_package_that_pins_another_torch_is_named_with_its_pin(team: Project) -> None:
    text = team.read("torchenv.toml")
    team.write(
        "torchenv.toml", text[: text.index('[[target]]\nname = "v100"')].replace('"lightning"', '"xformers"')
    )
    done = team.run("lock")
    assert done.code == 3
    assert done.said.splitlines()[-2:] == [
        "error: target ada: xformers==0.0.40 wants torch==2.14.1, and the plan has torch==2.15.0+cu132",
        "hint: leave xformers out, or plan a release that it takes: torch==2.14.1",
    ]


def test_an_index_that_a_dependency_or_a_variable_names_does_not_leak_in(team: Project) -> None:
    # A finished release on an inherited index would outrank the build that is wanted.
    root = team.index.root
    team.index.add("elsewhere", Wheel(name="lightning", version="9.0"), Wheel(name="torch", version="9.0"))
    settings = team.directory.parent / "home" / ".config" / "uv"
    settings.mkdir(parents=True)
    (settings / "uv.toml").write_text(f'extra-index-url = ["{root}/elsewhere"]\n', "utf-8")
    done = team.run("lock", PIP_EXTRA_INDEX_URL=f"{root}/elsewhere", UV_INDEX=f"{root}/elsewhere")
    assert done.code == 0, done.said
    assert lock_of(team, "ada").versions["lightning"] == "2.5.0"
    assert set(lock_of(team, "ada").indexes) == {f"{root}/simple", f"{root}/whl/cu132"}
    assert not any("/elsewhere/" in path for path in team.index.requests)


def test_a_check_of_what_did_not_change_asks_nobody_and_finds_nothing(team: Project) -> None:
    team.run("lock")
    team.index.forget()
    done = team.run("lock", "--check")
    assert (done.code, done.out) == (0, "lock files are up to date")
    assert team.index.requests == []


def test_what_does_not_decide_what_is_locked_is_no_drift(team: Project) -> None:
    team.run("lock")
    team.change("torchenv.toml", "# The team's machines.", "# Machines, and how they are proven.\n")
    team.write(
        "torchenv.toml", team.read("torchenv.toml") + '\n[smoke]\ncommands = [["python", "smoke.py"]]\n'
    )
    assert team.run("lock", "--check").code == 0


def test_a_check_says_what_drifted_and_why(team: Project) -> None:
    done = team.run("lock", "--check")
    assert (done.code, done.out) == (1, "torchenv.lock.toml does not exist: nothing is locked yet")

    team.run("lock")
    team.change("torchenv.toml", '["lightning"]', '["lightning", "numpy"]')
    team.change("torchenv.toml", 'backend = "cu126"', 'backend = "cu130"')
    digest = tomllib.loads(team.read("torchenv.lock.toml"))["target"][0]["lock"]
    team.change("pylock.ada.toml", "lightning-2.5.0", "lightning-2.5.1")
    (team.directory / "pylock.ci.toml").unlink()
    done = team.run("lock", "--check", "--json")
    assert done.code == 1
    one, two, three, four = done.json["drift"]
    assert one == '[packages] requirements: ["lightning"] when it was locked, ["lightning", "numpy"] now'
    assert two.startswith('target v100: { name = "v100", ')
    assert three.startswith(f"pylock.ada.toml was changed since it was locked: {digest} then, sha256:")
    assert four == "pylock.ci.toml is missing"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('name = "v100"', "", "torchenv.toml: target[1].name is missing"),
        ('name = "v100"', 'name = "ada"', "torchenv.toml: target[1].name: `ada` names two targets"),
        ('name = "team"', 'torch = "2.15"', "torchenv.toml: not valid TOML: "),
        ("[packages]", "[pakages]", "torchenv.toml: pakages is not a setting"),
    ],
)
def test_a_profile_that_is_none_any_more_is_wrong_and_no_drift(
    team: Project, old: str, new: str, said: str
) -> None:
    team.run("lock")
    team.change("torchenv.toml", old, new)
    done = team.run("lock", "--check")
    assert (done.code, done.out) == (2, "")
    assert done.said.startswith(f"error: {said}")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('name = "ada"\n', "", "wanted.target[0].name is missing"),
        ("[wanted.torch]", "[wanted]\ntorch = 3\n[other]", "other is not a setting"),
        ("[wanted.torch]", "[[wanted.torch]]", "wanted.torch: must be a table, not a list"),
        ("schema = 2", "<<<<<<< HEAD", "not valid TOML: "),
        ("schema = 2", "schema = 1", "schema: is 1, and this torchenv reads 2"),
    ],
)
def test_a_tie_that_is_damaged_is_named_by_its_place(team: Project, old: str, new: str, said: str) -> None:
    team.run("lock")
    text = team.read("torchenv.lock.toml")
    assert old in text
    team.write("torchenv.lock.toml", text.replace(old, new, 1))
    done = team.run("lock", "--check")
    assert (done.code, done.out) == (2, "")
    assert done.said.startswith(f"error: torchenv.lock.toml: {said}")


def test_a_changed_requirements_file_is_drift(team: Project) -> None:
    team.write("requirements.txt", "numpy<2.3\n")
    team.change("torchenv.toml", 'requirements = ["lightning"]', 'from = ["requirements.txt"]')
    team.run("lock")
    assert lock_of(team, "ci").versions["numpy"] == "2.2.0"
    team.write("requirements.txt", "numpy\n")
    (said,) = team.run("lock", "--check", "--json").json["drift"]
    assert said.startswith("[files] requirements.txt: ")


def test_a_new_catalogue_is_drift_only_where_it_decides_otherwise(team: Project) -> None:
    team.run("lock")
    team.write("torchenv-catalogue.toml", 'schema = 1\ncompiled = "2026-12-24"\n')
    assert team.run("lock", "--check").code == 0
    team.write(
        "torchenv-catalogue.toml",
        'schema = 1\n[[release]]\nversion = "2.15.0"\n[[release.backend]]\ntag = "cpu"\nplatforms = []\n',
    )
    done = team.run("lock", "--check")
    assert done.code == 1
    assert done.out.splitlines()[0] == (
        "target ci: torch 2.15.0+cpu (cpu) when it was locked,"
        " and the catalogue now gives torch 2.14.1+cpu (cpu)"
    )


def test_hosts_that_were_recorded_bring_their_targets_and_the_comments_stay(team: Project) -> None:
    hosts = team.directory.parents[0] / "hosts"
    hosts.mkdir()
    here = __file__.rpartition("/actions/")[0]
    done = team.run(
        "lock", "--host", f"{here}/data/hosts/mi300x.json", "--host", f"{here}/data/hosts/arc-b580.json"
    )
    assert done.code == 0, done.said
    # There is a target for the MI300X already.
    assert "adding target xpu: linux-x86_64, Python 3.12, xpu" in done.said.splitlines()
    text = team.read("torchenv.toml")
    assert text.startswith("# The team's machines.\n")
    assert "# the workstation under the desk" in text
    assert text.endswith(
        '\n[[target]]\nname = "xpu"\nplatform = "linux-x86_64"\npython = "3.12"\nbackend = "xpu"\n'
    )
    assert torch_of(team)["xpu"] == "2.15.0+xpu"
    assert team.run("lock", "--check").code == 0


@pytest.mark.parametrize(
    ("share", "backends"),
    [(None, ["cu126", "cu132"]), ("--newest", ["cu126", "cu132"]), ("--fewest", ["cu126"])],
)
def test_machines_get_the_newest_each_or_the_fewest_together(
    team: Project, share: str | None, backends: list[str]
) -> None:
    team.write("torchenv.toml", team.read("torchenv.toml").partition("[[target]]")[0])
    here = __file__.rpartition("/actions/")[0]
    hosts = [f"{here}/data/hosts/{name}.json" for name in ("rtx-4090-driver-580", "v100-driver-580")]
    said = []
    for order in (hosts, hosts[::-1]):
        done = team.run("lock", "--host", *order, *([share] if share else []), "--dry-run")
        assert done.code == 0, done.said
        said.append([line for line in done.said.splitlines() if line.startswith("adding target ")])
    assert said[0] == said[1]
    assert sorted({line.rpartition(", ")[2] for line in said[0]}) == backends
    alone = team.run("lock", "--fewest")
    assert (alone.code, alone.said.splitlines()[-1]) == (
        2,
        "hint: add `--host FILE`, or leave out `--fewest`",
    )


def test_a_profile_with_inline_targets_gets_its_new_ones_in_the_same_list(team: Project) -> None:
    head = team.read("torchenv.toml").partition("[torch]")
    targets = 'target = [{ name = "a", platform = "linux-x86_64", python = "3.12", backend = "cpu" }]\n'
    body = f"{head[1]}{head[2]}".partition("[[target]]")[0]
    team.write("torchenv.toml", head[0] + targets + body)
    here = __file__.rpartition("/actions/")[0]
    done = team.run("lock", "--host", f"{here}/data/hosts/arc-b580.json", "--dry-run")
    assert (done.code, done.out.count("2.15.0+xpu")) == (0, 1), done.said
    done = team.run("lock", "--host", f"{here}/data/hosts/arc-b580.json")
    assert done.code == 0, done.said
    assert [target["name"] for target in tomllib.loads(team.read("torchenv.toml"))["target"]] == ["a", "xpu"]


def test_a_damaged_host_file_among_many_is_named_and_nothing_is_written(team: Project) -> None:
    here = __file__.rpartition("/actions/")[0]
    team.write("bad.json", '{"schema": "torchenv.host/1", ')
    before = team.read("torchenv.toml")
    hosts = [f"{here}/data/hosts/{name}.json" for name in ("mi300x", "arc-b580")]
    for words in (("lock", "--host"), ("sync", "--host"), ("plan", "2.15", "--host")):
        done = team.run(*words, *hosts, "bad.json")
        assert done.code == 2
        assert "bad.json: not valid JSON" in done.said or "torchenv.lock.toml" in done.said
        assert "Traceback" not in done.said
    assert team.read("torchenv.toml") == before


def test_a_host_that_nothing_serves_is_named_and_brings_no_target(team: Project) -> None:
    here = __file__.rpartition("/actions/")[0]
    before = team.read("torchenv.toml")
    done = team.run("lock", "--host", f"{here}/data/hosts/rtx-5090-driver-570.json")
    assert done.code == 0, done.said
    assert done.said.splitlines()[0] == (
        "note: no target supports rtx-5090-driver-570:"
        " torch 2.15.0 (cu132): needs driver 580 or newer, this host has 570.86.16"
    )
    assert team.read("torchenv.toml") == before


def test_an_index_of_one_persons_own_is_noted_when_it_gets_into_a_lock(team: Project) -> None:
    done = team.run("lock", TORCHENV_PACKAGE_INDEX=team.index.packages)
    assert done.said.splitlines()[0] == (
        "note: TORCHENV_PACKAGE_INDEX is set, and its addresses go into the lock files:"
        " write it under [index] of torchenv.toml, so that whoever locks gets the same"
    )


@pytest.mark.parametrize("words", [(), ("--check",)])
def test_a_directory_without_a_profile_is_told_how_to_begin(team: Project, words: tuple[str, ...]) -> None:
    (team.directory / "torchenv.toml").unlink()
    done = team.run("lock", *words)
    assert (done.code, done.said) == (
        2,
        f"error: no torchenv.toml in {team.directory}\nhint: write one with `torchenv init`",
    )


def test_a_profile_without_targets_is_told_what_to_write(team: Project) -> None:
    text = team.read("torchenv.toml")
    team.write("torchenv.toml", text[: text.index("[[target]]")])
    done = team.run("lock")
    assert (done.code, done.said) == (
        2,
        (
            "error: the profile has no [[target]] to lock\n"
            "hint: run `torchenv probe -o node.json`, then `torchenv lock --host node.json`"
        ),
    )


def mirrored(index: Index, place: str) -> None:
    """Let a mirror have all that the indexes have."""
    for name in list(index.places()):
        index.add(f"{place}/{name}", *index.wheels(name))


def test_a_mirror_changes_every_address_and_no_hash(team: Project) -> None:
    team.run("lock")
    before = {name: lock_of(team, name) for name in torch_of(team)}
    mirrored(team.index, "company")
    done = team.run("lock", "--mirror", f"{team.index.root}/company")
    assert done.code == 0, done.said
    assert "  ~ torch 2.15.0+cu132: other addresses" in done.out.splitlines()
    for name, was in before.items():
        now = lock_of(team, name)
        assert now.versions == was.versions
        hashes = [[file.sha256 for file in package.files] for package in was.packages]
        assert [[file.sha256 for file in package.files] for package in now.packages] == hashes
        assert all(
            file.url.startswith(f"{team.index.root}/company/")
            for package in now.packages
            for file in package.files
        )
    assert team.run("lock", "--check").code == 0


def test_a_mirror_that_has_another_file_is_refused(team: Project) -> None:
    team.run("lock")
    before = team.locks()
    mirrored(team.index, "company")
    other = Wheel(name="filelock", version="3.20.0", files={"filelock/__init__.py": "# other\n"})
    team.index.add("company/simple", other)
    done = team.run("lock", "--mirror", f"{team.index.root}/company")
    assert done.code == 4
    assert "has another filelock-3.20.0-py3-none-any.whl: expected sha256 " in done.said
    team.index.remove("company/simple", "filelock")
    done = team.run("lock", "--mirror", f"{team.index.root}/company")
    assert f"{team.index.root}/company/simple does not have filelock-3.20.0-py3-none-any.whl" in done.said
    assert team.locks() == before
