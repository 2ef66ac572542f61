"""The workspace on disk: readers never wait, writers take turns, and a stop at any moment leaves it sound."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from torchenv.environment.base_python import BasePython
from torchenv.environment.identity import identity
from torchenv.errors import InputError, WorkspaceError
from torchenv.system.disk import Disk, PathLength, make_refusal
from torchenv.system.orphans import SharedHandles
from torchenv.workspace.manifest import Manifest
from torchenv.workspace.records import State
from torchenv.workspace.store import Gone, InPlace, Moved, Replaced, Store

AT = datetime(2026, 11, 30, 8, tzinfo=UTC)
PYTHON = BasePython("3.12.7", "/usr/bin/python3.12")


class StoppingDisk(Disk):
    """A disk that stops at one step: before or after it was done, by a refusal or by a kill."""

    def __init__(self, at: int, stop: BaseException, *, done: bool) -> None:
        self.left = at
        self.stop = stop
        self.done = done

    def _step(self, *, done: bool) -> None:
        if not done:
            self.left -= 1
        if self.left == 0 and done is self.done:
            self.left = -1
            raise self.stop

    def make_directory(self, path: Path) -> None:
        self._step(done=False)
        super().make_directory(path)
        self._step(done=True)

    def write(self, path: Path, text: str) -> None:
        self._step(done=False)
        super().write(path, text)
        self._step(done=True)

    def rename(self, old: Path, new: Path) -> None:
        self._step(done=False)
        super().rename(old, new)
        self._step(done=True)

    def link(self, at: Path, target: Path) -> bool:
        self._step(done=False)
        done = super().link(at, target)
        self._step(done=True)
        return done

    def delete(self, path: Path) -> bool:
        self._step(done=False)
        done = super().delete(path)
        self._step(done=True)
        return done


def build(store: Store, name: str = "2.15.0-cu132-py3.12") -> int:
    """Do what a `create` does to the workspace; the caller holds it."""
    manifest, new = store.clear_unfinished().begin(
        name, within=store.environments, python=PYTHON, at=AT, identity=os.urandom(8).hex()
    )
    store.write(manifest)
    store.write_lock(new.number, "lock-version = '1.0'\n")
    Path(new.path).mkdir(parents=True)
    Path(new.path, "pyvenv.cfg").write_text("home = /usr/bin\n")
    store.mark(new)
    manifest, new = manifest.commit(new, lock="sha256:11")
    store.write(manifest)
    return new.number


def use(store: Store, number: int) -> None:
    manifest = store.read().use(number, why="use", at=AT)
    store.write(manifest)
    store.remake_current(manifest)


def remove(store: Store, number: int) -> None:
    manifest = store.clear_unfinished()
    store.discard(manifest.number(number))
    store.write(manifest.mark_removed(number))
    store.empty_trash()


def life(store: Store) -> None:
    with store.hold("a life"):
        number = build(store)
        use(store, number)
        remove(store, 1)


def two_environments(root: Path) -> Store:
    store = Store(root)
    with store.hold("a start"):
        build(store)
        use(store, build(store))
    return store


def test_a_workspace_that_is_not_there_yet_reads_as_empty_and_is_not_made(tmp_path: Path) -> None:
    assert Store(tmp_path / "ws").read() == Manifest()
    assert list(tmp_path.iterdir()) == []


def test_what_was_written_is_read_back_with_the_place_of_the_workspace(tmp_path: Path) -> None:
    store = two_environments(tmp_path)
    manifest = store.read()
    assert manifest.current == 2
    assert manifest.root == str(tmp_path)
    assert [environment.state for environment in manifest.environments] == [State.READY, State.READY]
    assert store.lock_path(2) == tmp_path / "locks" / "pylock.2.toml"
    assert store.lock_path(2).read_text() == "lock-version = '1.0'\n"


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("stop", [KeyboardInterrupt(), WorkspaceError("no space left")])
def test_a_run_stopped_at_any_step_leaves_the_environment_in_use_before_or_after(
    tmp_path: Path, stop: BaseException, *, done: bool
) -> None:
    unstopped = StoppingDisk(1000, stop, done=done)
    two_environments(tmp_path / "whole")
    life(Store(tmp_path / "whole", disk=unstopped))
    steps = 1000 - unstopped.left
    assert steps > 20

    for step in range(1, steps + 1):
        root = tmp_path / str(step)
        two_environments(root)
        # What refuses to make `current` anew is said and stops nothing, so not every refusal comes out.
        with suppress(KeyboardInterrupt, WorkspaceError):
            life(Store(root, disk=StoppingDisk(step, stop, done=done)))
        assert Store(root).read().current in (2, 3)

        store = Store(root)
        with store.hold("the next command"):
            manifest = store.clear_unfinished()
        assert manifest == store.read()
        assert manifest.list_unfinished() == ()
        here = {str(path) for path in store.environments.iterdir()}
        assert here == {environment.path for environment in manifest.environments if environment.on_disk}
        assert not list((root / "trash").glob("*"))
        assert manifest.active is not None
        assert store.current.readlink() == Path(manifest.active.path)


def test_a_manifest_is_replaced_whole_and_its_copy_stays_beside_it(tmp_path: Path) -> None:
    store = two_environments(tmp_path)
    before = store.manifest_path.read_text()
    refusing = Store(tmp_path, disk=StoppingDisk(2, WorkspaceError("no space left"), done=True))
    with refusing.hold("a change"), pytest.raises(WorkspaceError, match="no space left"):
        refusing.write(Manifest())
    assert store.manifest_path.read_text() == before
    assert store.last_good_path.read_text() == before
    assert not list(tmp_path.glob("*.new"))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (b"", "{path}: schema is missing"),
        (b"schema = 1\nnext-numb", "{path}: not valid TOML: Expected '=' after a key"),
        (b"\xff\xfe", "{path}: not a text"),
        (b"schema = 1\nend-mark = true\nnext-number = 3\n", "{path}: its end is missing"),
        (None, "{path} is missing"),
    ],
)
def test_a_damaged_manifest_is_reported_with_its_last_good_copy(
    tmp_path: Path, damage: bytes | None, message: str
) -> None:
    store = two_environments(tmp_path)
    good = store.read()
    if damage is None:
        store.manifest_path.unlink()
    else:
        store.manifest_path.write_bytes(damage)
    with pytest.raises(WorkspaceError) as caught:
        store.read()
    assert str(caught.value).startswith(message.format(path=store.manifest_path))
    assert caught.value.hint == (
        f"look through its last good copy {store.last_good_path}, then copy it to its place"
    )
    assert caught.value.exit_code == 5

    store.last_good_path.replace(store.manifest_path)
    assert store.read() == good


def test_a_manifest_of_a_later_schema_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    store = two_environments(tmp_path)
    later = store.manifest_path.read_text().replace("schema = 1", "schema = 2")
    store.manifest_path.write_text(later)
    with pytest.raises(WorkspaceError, match="schema 2 is not known to this torchenv"):
        life(store)
    assert store.manifest_path.read_text() == later


def test_a_second_writer_waits_and_says_for_what(tmp_path: Path) -> None:
    first = Store(tmp_path)
    said: list[str] = []
    waited, entered = threading.Event(), threading.Event()

    def say(text: str) -> None:
        said.append(text)
        waited.set()

    def second() -> None:
        with Store(tmp_path, say=say).hold("torchenv use 2"):
            entered.set()

    with first.hold("torchenv create 2.15"):
        thread = threading.Thread(target=second)
        thread.start()
        assert waited.wait(10)
        assert not entered.is_set()
        assert Store(tmp_path).read() == Manifest()
    thread.join(10)
    assert entered.is_set()
    host = os.uname().nodename
    assert len(said) == 1
    assert said[0].startswith(f"waiting for torchenv create 2.15 (process {os.getpid()} on {host}, since 20")
    assert said[0].endswith(f" UTC), which is changing `{tmp_path}`")


def test_a_writer_that_waited_long_enough_says_who_holds_the_workspace(tmp_path: Path) -> None:
    with Store(tmp_path).hold("torchenv checkpoints keep"):
        impatient = Store(tmp_path, patience=0.0)
        with pytest.raises(WorkspaceError) as caught, impatient.hold("torchenv rollback"):
            pass
    held = f"`{tmp_path}` has been held for 0 s by torchenv checkpoints keep (process {os.getpid()} on "
    assert str(caught.value).startswith(held)
    assert caught.value.exit_code == 5


def _hold_and_die(root: Path) -> None:
    with Store(root).hold("torchenv create 2.15"):
        os._exit(9)


def test_a_writer_that_was_killed_holds_nobody_up(tmp_path: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_hold_and_die, args=(tmp_path,))
    process.start()
    process.join()
    assert process.exitcode == 9
    said: list[str] = []
    with Store(tmp_path, say=said.append).hold("torchenv use 2"):
        pass
    assert said == []


def _build_and_use(root: Path) -> None:
    store = Store(root)
    for _ in range(5):
        with store.hold("torchenv create"):
            number = build(store)
        with store.hold("torchenv use"):
            use(store, number)


def test_many_writers_at_once_end_with_a_sound_manifest_and_every_environment_recorded(
    tmp_path: Path,
) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_build_and_use, args=(tmp_path,)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0, 0]

    store = Store(tmp_path)
    manifest = store.read()
    assert [environment.number for environment in manifest.environments] == list(range(1, 21))
    assert {str(path) for path in store.environments.iterdir()} == {
        environment.path for environment in manifest.environments
    }
    # Each switch begins where the one before it ended.
    assert [switche.from_ for switche in manifest.switches] == [
        None,
        *(switch.to for switch in manifest.switches[:-1]),
    ]
    assert manifest.active is not None
    assert store.current.readlink() == Path(manifest.active.path)


def test_nothing_is_written_without_holding_the_workspace(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="may replace its manifest"):
        Store(tmp_path).write(Manifest())


def test_a_building_line_and_its_files_are_cleared_by_the_next_run_which_says_so(tmp_path: Path) -> None:
    said: list[str] = []
    store = Store(tmp_path, say=said.append)
    with store.hold("torchenv create 2.15"):
        manifest, new = store.read().begin("2.15", within=store.environments, python=PYTHON, at=AT)
        store.write(manifest)
        store.write_lock(new.number, "")
        store.write_plan(new.number, "{}")
        store.write_fingerprint(new.number, "")
        Path(new.path, "lib").mkdir(parents=True)
    with store.hold("torchenv list"):
        assert store.clear_unfinished() == store.read()
    assert said == ["clearing environment 1 (2.15), which was left unfinished"]
    files = (path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file())
    left = sorted(str(path) for path in files if path.parts[0] != "reserve")
    assert left == [".gitignore", "identity", "lock", "manifest.toml", "manifest.toml.last-good"]
    assert store.read().next_number == 2


def test_what_is_not_torchenvs_own_is_never_discarded(tmp_path: Path) -> None:
    venv = tmp_path / "1-venv"
    venv.mkdir()
    store = Store(tmp_path / "ws")
    with store.hold("torchenv remove 1"):
        _, adopted = Manifest().adopt("a", path=venv, python=PYTHON, at=AT)
        with pytest.raises(WorkspaceError) as caught:
            store.discard(adopted)
    assert str(caught.value) == f"{venv} is not one of torchenv's own environments: left alone"
    assert venv.is_dir()


def test_an_edited_path_leads_to_deleting_nothing_outside_the_workspace(tmp_path: Path) -> None:
    store = two_environments(tmp_path / "ws")
    outside = tmp_path / "2-precious"
    outside.mkdir()
    text = store.manifest_path.read_text()
    store.manifest_path.write_text(text.replace(store.read().number(2).path, str(outside)))
    with store.hold("torchenv remove 2"):
        store.discard(store.read().number(2))
        store.empty_trash()
    assert outside.is_dir()


def test_what_someone_put_in_the_place_of_an_environment_is_left_alone(tmp_path: Path) -> None:
    store = two_environments(tmp_path / "ws")
    environment = store.read().number(1)
    place = Path(environment.path)
    place.rename(tmp_path / "elsewhere")
    place.mkdir()
    (place / "thesis.txt").write_text("precious")
    with store.hold("torchenv remove 1"), pytest.raises(WorkspaceError) as caught:
        store.discard(environment)
    assert str(caught.value) == f"{place} is not what torchenv built there: left alone"
    assert caught.value.hint == "move it to where it belongs, or remove the environment from the manifest"
    assert (place / "thesis.txt").read_text() == "precious"


def test_a_directory_of_the_users_own_is_no_workspace(tmp_path: Path) -> None:
    (tmp_path / "trash").mkdir()
    for name in ("lock", "thesis.txt", "trash/draft.txt"):
        (tmp_path / name).write_text("precious")
    with pytest.raises(InputError) as caught, Store(tmp_path).hold("torchenv create 2.15"):
        pass
    assert str(caught.value) == f"{tmp_path} is not a workspace: it holds thesis.txt"
    assert caught.value.hint == f"name a directory of its own, such as --root {tmp_path / 'torchenv'}"
    assert {path.read_text() for path in tmp_path.rglob("*") if path.is_file()} == {"precious"}


def test_a_first_run_that_was_stopped_leaves_a_workspace(tmp_path: Path) -> None:
    for name in ("lock", "manifest.toml.new", ".DS_Store"):
        (tmp_path / name).write_text("")
    (tmp_path / "envs").mkdir()
    with Store(tmp_path).hold("torchenv create 2.15"):
        pass


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every name is a text")
def test_a_place_whose_name_is_no_text_is_refused_before_it_is_recorded(tmp_path: Path) -> None:
    root = Path(os.fsdecode(os.fsencode(tmp_path / "ws") + b"\xff"))
    store = Store(root)
    with store.hold("torchenv create 2.15"), pytest.raises(InputError) as caught:
        build(store)
    assert str(caught.value).startswith(f"{root}/manifest.toml cannot record what is not UTF-8 text: ")
    assert store.read() == Manifest()


def test_current_leads_to_the_environment_in_use_and_is_replaced_at_once(tmp_path: Path) -> None:
    store = two_environments(tmp_path)
    assert store.current.readlink() == Path(store.read().number(2).path)
    with store.hold("torchenv use 1"):
        use(store, 1)
    assert store.current.readlink() == Path(store.read().number(1).path)


class NoLinks(Disk):
    def link(self, at: Path, target: Path) -> bool:
        del at, target
        return False


def test_where_links_are_not_allowed_current_is_a_small_file(tmp_path: Path) -> None:
    store = Store(tmp_path, disk=NoLinks())
    with store.hold("torchenv use"):
        use(store, build(store))
        use(store, build(store))
    assert store.current.read_text() == f"{store.read().number(2).path}\n"


def test_a_current_that_someone_made_a_directory_stops_no_switch(tmp_path: Path) -> None:
    two_environments(tmp_path)
    (tmp_path / "current").unlink()
    (tmp_path / "current" / "notes").mkdir(parents=True)
    said: list[str] = []
    store = Store(tmp_path, say=said.append)
    with store.hold("torchenv use 1"):
        use(store, 1)
    assert store.read().current == 1
    (line,) = said
    assert line.startswith("`current` could not be remade: ")
    assert (tmp_path / "current" / "notes").is_dir()


def test_an_environment_is_found_where_it_was_made(tmp_path: Path) -> None:
    store = two_environments(tmp_path)
    environment = store.read().number(2)
    assert store.locate(environment) == InPlace(Path(environment.path))


def test_an_environment_is_found_again_after_its_project_was_renamed(tmp_path: Path) -> None:
    venv = tmp_path / "old" / ".venv"
    venv.mkdir(parents=True)
    (venv / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.12.7\n")
    store = two_environments(tmp_path / "old" / ".torchenv")
    with store.hold("torchenv adopt"):
        manifest, _ = store.read().adopt("a", path=venv, python=PYTHON, at=AT, identity=identity(venv))
        store.write(manifest)
    (tmp_path / "old").rename(tmp_path / "new")

    moved = Store(tmp_path / "new" / ".torchenv")
    built, adopted = moved.read().number(2), moved.read().number(3)
    assert moved.locate(built) == Moved(
        tmp_path / "new/.torchenv/envs/2-2.15.0-cu132-py3.12-2", was=Path(built.path)
    )
    assert moved.locate(adopted) == Moved(tmp_path / "new/.venv", was=venv)

    # A new folder at the old path is not taken for it.
    venv.mkdir(parents=True)
    (venv / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.12.7\n")
    assert moved.locate(adopted) == Moved(tmp_path / "new/.venv", was=venv)


def test_another_environment_at_the_recorded_place_is_not_taken_for_the_recorded_one(tmp_path: Path) -> None:
    store = two_environments(tmp_path)
    environment = store.read().number(2)
    path = Path(environment.path)
    (path / ".torchenv-id").write_text("someone else\n")
    assert store.locate(environment) == Replaced(path)
    path.rename(tmp_path / "elsewhere")
    assert store.locate(environment) == Gone(path)


@pytest.mark.parametrize("root", ["file/ws", "file"])
def test_a_workspace_that_cannot_be_made_is_refused_with_the_way_out(tmp_path: Path, root: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WorkspaceError) as caught, Store(tmp_path / root).hold("torchenv create 2.15"):
        pass
    assert str(caught.value).startswith(f"{tmp_path / root}: ")
    assert caught.value.hint == "choose another place with `--root DIR` or TORCHENV_HOME"


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (28, "/ws: no space is left on its disk"),
        (30, "/ws: its disk is read-only"),
        (13, "/ws: may not be written by this user"),
        (5, "/ws: Input/output error"),
    ],
)
def test_what_the_disk_refuses_is_said_with_its_place(number: int, message: str) -> None:
    error = make_refusal(Path("/ws"), OSError(number, os.strerror(number)))
    assert str(error) == message
    assert error.exit_code == 5


def test_free_space_is_that_of_the_nearest_directory_that_is_there(tmp_path: Path) -> None:
    assert Disk().free_space(tmp_path / "not" / "yet") > 0


def test_a_path_too_long_for_windows_is_seen_before_anything_is_downloaded() -> None:
    fits, too_long = PathLength(122, 126), PathLength(122, 167)
    assert (str(fits), fits.fits, fits.too_many) == ("122 + 1 + 126 = 249 characters, of 259", True, 0)
    assert (str(too_long), too_long.fits, too_long.too_many) == (
        "122 + 1 + 167 = 290 characters, of 259",
        False,
        31,
    )


def test_what_a_killed_run_had_not_given_its_name_is_cleared_but_not_what_another_run_builds(
    tmp_path: Path,
) -> None:
    store, other = Store(tmp_path / "w"), Store(tmp_path / "w")
    with store.hold("torchenv create"):
        manifest, new = store.read().begin("a", within=store.environments, python=PYTHON, at=AT)
        store.write(manifest)
    names = ("locks/pylock.7.toml.new", "plans/7.json.new", "fingerprints/7.txt.new", "logs/7/smoke.txt.new")
    left = [store.root / name for name in (*names, "manifest.toml.new", "kept/abc.json.new", "current.new")]
    needed = [store.root / f"locks/pylock.{new.number}.toml.new", store.root / f"logs/{new.number}/a.txt.new"]
    mine = store.root / "notes.new"
    for path in (*left, *needed, mine):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    with other.build(new.number, "key", "torchenv create"), store.hold("torchenv rollback"):
        store.clear_unfinished()
    assert [path for path in left if path.exists()] == []
    assert [path for path in (*needed, mine) if not path.exists()] == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who holds a lock")
def test_a_program_that_an_interrupt_left_unwatched_is_ended_before_its_directory_is_cleared(
    tmp_path: Path,
) -> None:
    shared = SharedHandles()
    store = Store(tmp_path / "workspace", share=shared.share)
    with store.hold("torchenv create"):
        manifest, new = store.read().begin("env", within=store.environments, python=PYTHON, at=AT)
        store.write(manifest)
    with store.build(new.number, "key", "torchenv create"):
        # As where the interrupt comes between the start of a program and the watch over it.
        child = subprocess.Popen(["sleep", "600"], pass_fds=shared.numbers())
        with store.hold("torchenv create"):
            assert not store.clear_unfinished().environments
        assert child.wait(timeout=30) == -signal.SIGKILL
    assert not list((store.root / "building").iterdir())


def test_lock_and_lease_of_a_build_that_has_ended_are_cleared(tmp_path: Path) -> None:
    store = two_environments(tmp_path / "workspace")
    building = store.root / "building"
    building.mkdir(exist_ok=True)
    for name in ("15.lease", "16.lock", "17.lock", "17.lease"):
        (building / name).write_text("")
        os.utime(building / name, (1_000_000_000, 1_000_000_000))
    other = Store(store.root)
    with other.build(18, "a key", "torchenv add numpy --in-place"), store.hold("torchenv use"):
        store.clear_unfinished()
        assert {path.name for path in building.iterdir()} == {"18.lock", "18.lease"}
    assert not list(building.iterdir())


def test_where_nothing_is_recorded_what_another_run_is_making_is_left_alone(tmp_path: Path) -> None:
    store = Store(tmp_path / "workspace")
    store.root.mkdir()
    # The first run of all is about to give its record its name.
    draft = store.root / "manifest.toml.new"
    draft.touch()
    with store.hold_existing("torchenv prune"):
        assert store.clear_unfinished() == Manifest()
    assert list(store.root.iterdir()) == [draft]
    with store.hold("torchenv create"):
        store.clear_unfinished()
    assert not draft.exists()
