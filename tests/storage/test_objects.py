"""Object stores are scanned, kept from and copied to as directories are: in memory, and S3 on a port."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from tests.checkpoints.support import CASES
from tests.support.checkpoints import contents, save
from tests.support.workspace import Workspace

from torchenv.actions.downgrade import Copied, DowngradeTarget, downgrade
from torchenv.actions.lifeboat import Keeping, KeptChange, digest_of, hash_files, keep, verify
from torchenv.checkpoints.scan import scan
from torchenv.checkpoints.scan.runs import runs_of
from torchenv.errors import InputError, ToolFailed
from torchenv.storage import Transfer, place
from torchenv.storage.objects import ObjectPlace

OLD = DowngradeTarget(torch="2.14", python="3.11.7", system="linux")


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """Serve S3 on a loopback port."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(params=["memory", "s3"])
def bucket(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return an address below which nothing is yet."""
    name = f"bucket-{uuid.uuid4()}"
    if request.param == "s3":
        # Every S3 client takes its server and its keys from these.
        monkeypatch.setenv("AWS_ENDPOINT_URL", request.getfixturevalue("s3"))
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        fsspec.filesystem("s3").mkdir(name)
    return f"{request.param}://{name}"


def put(directory: Path, address: str) -> str:
    store, path = fsspec.core.url_to_fs(address)
    for file in directory.iterdir():
        store.pipe_file(f"{path}/{file.name}", file.read_bytes())
    return address


def names(address: str) -> list[str]:
    return list(place(address).files())


def copied(source: str, to: str | None = None) -> Copied:
    return downgrade(source, OLD, to=to, progress=lambda *_: None)


def test_runs_in_an_object_store_are_found(bucket: str) -> None:
    put(CASES / "dcp-2.14.1", f"{bucket}/runs/a/step-100")
    put(CASES / "dcp-2.15.0", f"{bucket}/runs/a/step-200")
    put(CASES / "dcp-missingshard", f"{bucket}/runs/a/step-300")
    index = scan([place(f"{bucket}/runs")], None, lambda _: None)
    (run,) = runs_of(index, str)
    assert run.path == f"{bucket}/runs/a"
    assert [(save.name, save.complete) for save in run.saves] == [
        ("step-100", True),
        ("step-200", True),
        ("step-300", False),
    ]
    again = scan([place(f"{bucket}/runs")], index, lambda _: None)
    assert (index.read, again.read, again.roots) == (3, 0, index.roots)


def test_a_changed_object_is_read_again(bucket: str) -> None:
    put(CASES / "dcp-2.14.1", f"{bucket}/runs/a/step-100")
    first = scan([place(f"{bucket}/runs")], None, lambda _: None)
    put(CASES / "dcp-truncmeta", f"{bucket}/runs/a/step-100")
    again = scan([place(f"{bucket}/runs")], first, lambda _: None)
    ((*_, found),) = again
    assert (again.read, found.state) == (1, "corrupt")


def test_a_copy_is_made_within_the_store(bucket: str) -> None:
    source = put(CASES / "dcp-2.15.0", f"{bucket}/runs/a/step-200")
    before = hash_files(place(source), lambda *_: None)
    made = copied(source)
    assert (made.copy, made.made, made.carried) == (
        source.replace("runs/a/", "runs/a-for-2.14/"),
        True,
        frozenset({Transfer.COPIED}),
    )
    assert names(made.copy) == [".metadata", "__0_0.distcp"]
    assert copied(source).why == "already copied"
    assert hash_files(place(source), lambda *_: None) == before


def test_a_copy_is_made_to_and_from_a_store(bucket: str, tmp_path: Path) -> None:
    local = save(tmp_path / "step-200", "dcp-2.15.0")
    up = copied(str(local), f"{bucket}/up")
    down = copied(put(local, f"{bucket}/runs/step-200"), str(tmp_path / "down"))
    digests = {
        digest_of(hash_files(place(item.copy), lambda *_: None)) for item in (up, down, copied(str(local)))
    }
    assert len(digests) == 1


def test_a_lifeboat_is_kept_in_a_store_and_proved_there(bucket: str, workspace: Workspace) -> None:
    step = save(workspace.directory / "runs" / "a" / "step-100", "dcp-2.14.1")

    def kept() -> Keeping:
        return keep(
            str(step), workspace.store, copy=False, copy_to=bucket, system="linux", progress=lambda *_: None
        )

    first = kept()
    digest = (first.kept.digest or "").removeprefix("sha256:")
    copy = f"{bucket}/step-100-{digest[:16]}"
    assert (first.kept.copy, first.carried) == (copy, frozenset({Transfer.COPIED}))
    assert digest_of(hash_files(place(copy), lambda *_: None)) == first.kept.digest
    assert verify((), workspace.store, lambda *_: None)[1] == ()
    assert (kept().kept.copy, kept().carried) == (copy, frozenset())

    store, path = fsspec.core.url_to_fs(f"{copy}/__0_0.distcp")
    store.pipe_file(path, b"changed")
    assert verify((), workspace.store, lambda *_: None)[1] == (KeptChange(copy, "__0_0.distcp", "changed"),)
    with pytest.raises(ToolFailed) as raised:
        kept()
    assert str(raised.value) == f"the copy differs from what was kept: {copy}/__0_0.distcp: changed"


def test_what_a_stopped_copy_left_in_a_store_is_finished(bucket: str) -> None:
    source = put(CASES / "dcp-2.15.0", f"{bucket}/runs/a/step-200")
    store, path = fsspec.core.url_to_fs(source.replace("runs/a/", "runs/a-for-2.14/"))
    # Its shards came first: without .metadata nobody takes it for a checkpoint.
    store.pipe_file(f"{path}/__0_0.distcp", b"half")
    assert copied(source).made


def test_a_copy_that_was_stopped_is_no_checkpoint(bucket: str) -> None:
    source = put(CASES / "dcp-2.15.0", f"{bucket}/runs/a/step-200")

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        downgrade(source, OLD, progress=stop)
    assert not place(source.replace("runs/a/", "runs/a-for-2.14/")).exists()


def test_a_root_that_is_not_in_the_store_is_named(bucket: str) -> None:
    with pytest.raises(InputError) as raised:
        scan([place(f"{bucket}/none")], None, lambda _: None)
    assert str(raised.value) == f"`{bucket}/none` does not exist"


@pytest.mark.parametrize(
    ("address", "hint"),
    [("gs://bucket/runs", "install torchenv[gs]"), ("abfs://bucket/runs", "install torchenv[azure]")],
)
def test_what_is_not_installed_is_named(address: str, hint: str) -> None:
    with pytest.raises(InputError) as raised:
        place(address)
    assert raised.value.hint == hint


def test_an_unknown_store_is_refused() -> None:
    with pytest.raises(InputError) as raised:
        place("nowhere://bucket/runs")
    assert str(raised.value) == "nowhere://bucket/runs: Protocol not known: nowhere"


def test_a_path_and_a_file_address_lead_to_the_same(tmp_path: Path) -> None:
    save(tmp_path / "step-1", "dcp-2.14.1")
    assert place(f"file://{tmp_path}/step-1").files() == place(tmp_path / "step-1").files()
    assert len(contents(tmp_path)) == 2


class Counting:
    """A store that counts what it is asked, and fails where it is told to."""

    def __init__(self, store: Any, *, failures: int = 0) -> None:
        self._store, self.failures, self.asked = store, failures, list[str]()

    def __getattr__(self, name: str) -> Any:
        answer = getattr(self._store, name)

        def ask(*words: Any, **named: Any) -> Any:
            self.asked.append(name)
            if name == "find" and self.failures:
                self.failures -= 1
                raise RuntimeError("slow down")
            return answer(*words, **named)

        return ask if callable(answer) else answer


def counted(address: str, *, failures: int = 0) -> tuple[ObjectPlace, Counting]:
    store, path = fsspec.core.url_to_fs(address)
    counting = Counting(store, failures=failures)
    return ObjectPlace(counting, path, address), counting


def test_one_listing_tells_what_is_there_and_each_save_is_read_twice(bucket: str) -> None:
    for step in (100, 200, 300):
        put(CASES / "dcp-2.14.1", f"{bucket}/runs/a/step-{step}")
    there, counting = counted(f"{bucket}/runs")

    index = scan([there], None, lambda _: None)

    assert [found.state for *_, found in index] == ["complete"] * 3
    assert sorted(set(counting.asked)) == ["cat_file", "find", "invalidate_cache"]
    # The metadata, and how the first of its shards begins.
    assert (counting.asked.count("find"), counting.asked.count("cat_file")) == (1, 6)


def test_a_listing_that_fails_once_is_asked_for_again(bucket: str) -> None:
    put(CASES / "dcp-2.14.1", f"{bucket}/runs/a/step-100")
    there, counting = counted(f"{bucket}/runs", failures=1)

    assert len(list(scan([there], None, lambda _: None))) == 1
    assert counting.asked.count("find") == 2


def test_a_root_that_fails_leaves_the_others_scanned(bucket: str) -> None:
    put(CASES / "dcp-2.14.1", f"{bucket}/runs/a/step-100")
    put(CASES / "dcp-2.14.1", f"{bucket}/other/b/step-100")
    said: list[str] = []
    before = scan([place(f"{bucket}/runs")], None, said.append)
    failing, _ = counted(f"{bucket}/runs", failures=2)

    index = scan([failing, place(f"{bucket}/other")], before, said.append)

    assert index.roots[f"{bucket}/runs"] == before.roots[f"{bucket}/runs"]
    assert len(index.roots[f"{bucket}/other"]) == 1
    assert said == [f"{bucket}/runs cannot be listed: slow down: what was seen there before is kept"]
    alone, _ = counted(f"{bucket}/runs", failures=2)
    with pytest.raises(ToolFailed):
        scan([alone], before, said.append)
