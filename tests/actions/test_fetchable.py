"""Whether an environment could be built again is asked of the index without fetching anything."""

from __future__ import annotations

from tests.support.workspace import Workspace, lock_text

from torchenv.actions.fetchable import Fetchable, expiring, fetchable, irreplaceable
from torchenv.errors import ToolFailed
from torchenv.index.http import Missing
from torchenv.lockfile.lock import Lock

LOCK = Lock.parse(lock_text({"torch": "2.14.1+cu130", "numpy": "2.3.0", "rich": "14.0.0"}), "the lock")


def test_a_lock_whose_files_are_there_has_lost_nothing() -> None:
    assert fetchable(LOCK, lambda _: "") == Fetchable()


def test_a_file_that_is_gone_is_named_with_its_address_and_hash() -> None:
    found = fetchable(LOCK, lambda url: Missing(404) if "numpy" in url else "")
    (lost,) = map(str, found.lost)
    assert lost == (
        "numpy==2.3.0 can no longer be fetched: numpy-2.3.0-py3-none-any.whl;"
        f" it was at https://mirror.example/files/numpy-2.3.0-py3-none-any.whl, sha256 {'0' * 64}"
    )


def test_an_index_that_does_not_answer_is_asked_once_and_proves_nothing() -> None:
    asked = []

    def silent(url: str) -> str:
        asked.append(url)
        raise ToolFailed("the index cannot be reached")

    assert fetchable(LOCK, silent) == Fetchable(unknown=3)
    assert len(asked) == 1


def test_a_lock_that_is_gone_makes_an_environment_irreplaceable(workspace: Workspace) -> None:
    environment = workspace.built()
    path = workspace.store.lock_path(1)
    said: list[str] = []
    assert irreplaceable(environment, workspace.store, lambda _: "", said.append) is None
    path.unlink()
    assert (
        irreplaceable(environment, workspace.store, lambda _: "", said.append)
        == f"its lock file {path} is missing"
    )
    assert said == []


def test_development_builds_are_told_to_expire_before_anything_is_removed(workspace: Workspace) -> None:
    environment = workspace.built("2.16.0.dev20261120+cu132")
    lock = Lock.parse(workspace.store.lock_path(1).read_text("utf-8"), "the lock")
    said: list[str] = []
    irreplaceable(environment, workspace.store, lambda _: "", said.append)
    assert said == [f"note: {package}" for package in expiring(lock)]
    assert len(said) == 1
