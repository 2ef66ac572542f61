"""A release that nobody has seen yet is planned for, audited for and judged for checkpoints by data alone."""

from __future__ import annotations

from pathlib import Path

from tests.audit.test_next_release import CHANGES
from tests.catalogue.test_own_file import NEXT
from tests.checkpoints.support import SAMPLES
from tests.support.terminal import Terminal

HOST = """
{"schema": "torchenv.host/1", "captured_at": "2026-11-30T08:00:00Z", "system": "linux", "machine": "x86_64",
 "libc": {"family": "glibc", "version": "2.39"}, "macos": null,
 "pythons": [{"version": "3.12.7", "path": "/usr/bin/python3.12", "implementation": "cpython",
              "free_threaded": false, "machine": "x86_64"}],
 "nvidia": {"status": "found", "driver": "650.10", "devices": [
   {"index": 0, "name": "NVIDIA RTX 6090", "compute_capability": "13.0"}]}}
"""


def test_a_made_up_release_passes_through_plan_audit_and_checkpoints(terminal: Terminal) -> None:
    (terminal.cwd / "next.toml").write_text(NEXT + CHANGES, encoding="utf-8")
    (terminal.cwd / "host.json").write_text(HOST, encoding="utf-8")
    (terminal.cwd / "a.py").write_text("import torch\ntorch.jit.script(f)\n", encoding="utf-8")

    planned = terminal.type("plan", "2.16", "--host", "host.json", "--catalogue", "next.toml", "--json")
    assert (planned.code, planned.json["torch"], planned.json["backend"]) == (0, "2.16.0", "cu140")

    audited = terminal.type("audit", "a.py", "--catalogue", "next.toml", "--json")
    assert audited.code == 1
    assert audited.json["release"] == "2.16.0"
    assert [finding["rule"] for finding in audited.json["findings"]] == ["removed-name"]

    since = terminal.type("audit", "a.py", "--catalogue", "next.toml", "--release", "2.15")
    assert (since.code, since.out) == (0, "nothing found in 1 file, for torch 2.15.0\n")


def test_what_nobody_measured_is_inferred_at_most(terminal: Terminal) -> None:
    shown = terminal.type("checkpoints", "show", SAMPLES / "2.15.0" / "dcp_plain", "--json")
    (checkpoint,) = shown.json["checkpoints"]
    assert checkpoint["reader"]["torch_min"] == "2.15"
    assert Path(checkpoint["path"]).name == "dcp_plain"
