"""An extra index that everybody's shell presets decides nothing, and is listed as ignored."""

from __future__ import annotations

from tests.support.index import Index
from tests.support.terminal import Terminal

from torchenv.system.process import scrub_environ


def test_what_is_inherited_chooses_nothing_and_is_listed(terminal: Terminal, index: Index) -> None:
    machine = terminal.cwd.parent / "machine" / "pip"
    machine.mkdir(parents=True)
    (machine / "constraints.txt").write_text("torch<=2.14.1\n", "utf-8")
    (machine / "pip.conf").write_text(f"[global]\nconstraint = {machine / 'constraints.txt'}\n", "utf-8")
    extra = index.backend("cu132")
    ended = terminal.create("--json", PIP_EXTRA_INDEX_URL=extra, UV_EXTRA_INDEX_URL=extra)
    assert ended.code == 0, ended.err
    assert ended.json["torch"] == "2.15.0+cpu"
    assert {"PIP_EXTRA_INDEX_URL", "UV_EXTRA_INDEX_URL"} <= set(ended.json["choice"]["ignored"])
    # The constraint was not meant for this tool, but whoever set it meant something by it: it is named
    # before anything is fetched.
    named = f"forbids what is planned: torch<=2.14.1 ({machine / 'constraints.txt'})"
    assert named in ended.err


def test_certificates_and_proxies_are_kept() -> None:
    kept = scrub_environ({"PIP_CERT": "/ca.pem", "HTTPS_PROXY": "http://proxy.example", "PIP_INDEX_URL": "x"})
    assert kept["PIP_CERT"] == "/ca.pem"
    assert kept["HTTPS_PROXY"] == "http://proxy.example"
    assert "PIP_INDEX_URL" not in kept
