"""What `verify` says where the record of an environment itself is not whole."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from torchenv.actions.ports import Ports
from torchenv.actions.restore import Interpreters, restore
from torchenv.actions.verify import verify_environment
from torchenv.environment.base_python import BasePython
from torchenv.environment.fingerprint import fingerprint
from torchenv.environment.inspect import describe
from torchenv.errors import WorkspaceError
from torchenv.index.http import Network
from torchenv.index.pages import fetcher
from torchenv.installers.uv import Uv, uv_program
from torchenv.lockfile.lock import Lock
from torchenv.system.process import Programs
from torchenv.workspace.records import Environment
from torchenv.workspace.store import Store

AT = datetime(2026, 11, 30, 8, 0, tzinfo=UTC)
LOCK = 'lock-version = "1.0"\ncreated-by = "torchenv"\npackages = []\n'


def built(store: Store) -> Environment:
    with store.hold("torchenv create"):
        python = BasePython("3.12.7", sys.executable)
        manifest, new = store.settle().begin("2.15", within=store.environments, python=python, at=AT)
        site = Path(new.path) / "lib" / "python3.12" / "site-packages"
        site.mkdir(parents=True)
        (Path(new.path) / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.12.7\n")
        files = fingerprint(describe(Path(new.path)))
        store.write_fingerprint(new.number, files.text)
        store.write_lock(new.number, LOCK)
        lock = Lock.parse(LOCK, "lock").digest
        manifest, ready = manifest.commit(new, lock=lock, fingerprint=files.digest)
        store.write(manifest)
        return ready


def test_a_fingerprint_that_is_gone_is_a_finding_where_the_record_has_its_digest(tmp_path: Path) -> None:
    store = Store(tmp_path)
    environment = built(store)
    before = {finding.code for finding in verify_environment(environment, store, lambda *_: None)}
    assert "fingerprint-gone" not in before
    store.fingerprint_path(environment.number).unlink()
    found = verify_environment(environment, store, lambda *_: None)
    assert found[0].code == "fingerprint-gone"
    assert found[0].path == str(store.fingerprint_path(environment.number))


def test_a_lock_that_was_changed_since_builds_nothing_again(tmp_path: Path) -> None:
    store = Store(tmp_path)
    environment = built(store)
    with store.hold("torchenv remove"):
        manifest = store.settle()
        store.discard(environment)
        store.write(manifest.mark_removed(environment.number))
    path = store.lock_path(environment.number)
    path.write_text(f"# changed\n{LOCK}")
    run = Programs({})
    ports = Ports(
        store=store,
        installer=Uv(run, program=uv_program()),
        run=run,
        fetch=fetcher(Network()),
        say=lambda _: None,
        now=lambda: AT,
        system="linux",
    )
    with pytest.raises(WorkspaceError) as caught:
        restore("1", ports, Interpreters(find=tuple), None, lambda _: ())
    assert str(caught.value) == (f"lock file `{path}` was changed: its digest is not the recorded one")
    assert [path.name for path in store.environments.iterdir()] == []
