"""A release that nobody has seen yet is planned for, audited for and judged for checkpoints by data alone."""

from __future__ import annotations

from typing import Any

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


def show(terminal: Terminal, *options: str) -> dict[str, Any]:
    shown = terminal.type("checkpoints", "show", SAMPLES / "2.15.0" / "dcp_plain", "--json", *options)
    (checkpoint,) = shown.json["checkpoints"]
    reader: dict[str, Any] = checkpoint["reader"]
    return reader


def test_for_a_release_that_nobody_measured_who_reads_a_checkpoint_is_inferred(terminal: Terminal) -> None:
    (terminal.cwd / "next.toml").write_text(NEXT, encoding="utf-8")
    assert (show(terminal)["torch_min"], show(terminal)["certainty"]) == ("2.15", "confirmed")
    assert show(terminal, "--catalogue", "next.toml")["certainty"] == "inferred"

    text = terminal.type(
        "checkpoints", "show", SAMPLES / "2.15.0" / "dcp_plain", "--catalogue", "next.toml"
    ).out
    assert "(inferred: no release after torch 2.15 was measured)" in text

    measured = NEXT + '[checkpoints]\nnewest = "2.16"\n'
    (terminal.cwd / "measured.toml").write_text(measured, encoding="utf-8")
    assert show(terminal, "--catalogue", "measured.toml")["certainty"] == "confirmed"
