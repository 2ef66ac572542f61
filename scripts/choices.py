"""Who picks what for the recorded hosts: torchenv, uv, light-the-torch and torchruntime.

    python scripts/choices.py PEERS_PYTHON

PEERS_PYTHON is the interpreter of an environment that has light-the-torch and torchruntime, which
scripts/compare-choices makes. No peer can be handed a recorded host, so each is given what it would have read
there: uv its own variables for the driver or the architecture, light-the-torch an `nvidia-smi` that tells the
driver, torchruntime the card of that name from its own list. Where a peer reads nothing of the kind, nothing
is claimed of it. The answers are written to docs/choices.md.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from torchenv.catalogue import resources
from torchenv.catalogue.releases import Release
from torchenv.installers.uv import uv_program
from torchenv.system.process import scrub_environ

TOP = Path(__file__).parents[1]
HOSTS = TOP / "tests" / "data" / "hosts"
PAGE = TOP / "docs" / "choices.md"
TORCHENV = str(Path(sys.executable).with_name("torchenv"))
UV = str(uv_program())

# What a peer is not driven for, or leaves to its user.
NOT_DRIVEN = "not driven"

INTRODUCTION = """\
Made on {day} by `scripts/compare-choices` from the recorded hosts of `tests/data/hosts` that run Linux. No
peer can be handed a recorded host, so each was given what it would have read there: uv its own variables for
the driver or the chip, light-the-torch an `nvidia-smi` that names the driver, torchruntime the card of that
name from its own list; “{not_driven}” is where that cannot be done. In bold is the code with which torchenv's
catalogue refuses the newest torch of the index that was picked: it would not run on a card of that host.
torchenv is judged by its own catalogue, so that its column can hold none.\
"""

LIGHT_THE_TORCH = """
import sys
from light_the_torch._cb import detect_compatible_computation_backends as detect
print(*sorted(detect()))
"""

TORCHRUNTIME = """
import os, sqlite3, sys
import torchruntime
from torchruntime.device_db import DEVICE_DB_FILE, GPU
from torchruntime.platform_detection import get_torch_platform
devices = sqlite3.connect(os.path.join(os.path.dirname(torchruntime.__file__), DEVICE_DB_FILE))
found = []
for vendor, name in zip(sys.argv[1::2], sys.argv[2::2]):
    asked = "select * from pci_ids where vendor_id = ? and (device_name like ? or device_name like ?)"
    rows = devices.execute(asked, (vendor, f"%[{name}]%", f"%[{name}/%")).fetchall()
    if not rows:
        sys.exit(3)
    found.append(GPU(*rows[0][:4], bool(rows[0][4])))
print(get_torch_platform(found))
"""


@dataclass(frozen=True)
class Choice:
    """What one tool picks for one host, and what torchenv's catalogue says of that build there."""

    backend: str
    verdict: str = ""

    def __str__(self) -> str:
        return f"{self.backend}: **{self.verdict}**" if self.verdict else self.backend


def main(peers: str) -> int:
    hosts = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(HOSTS.glob("*.json"))}
    rows = []
    for name, host in hosts.items():
        if host["system"] != "linux":
            continue
        picks = [
            ours(name),
            *(
                judge(name, pick)
                for pick in (by_uv(host), by_light_the_torch(peers, host), by_torchruntime(peers, host))
            ),
        ]
        print(name, *picks, sep=" | ")
        rows.append((name, *map(str, picks)))
    PAGE.write_text("\n".join(page(rows, peers)) + "\n", "utf-8")
    return 0


def ours(name: str) -> Choice:
    """Return what `torchenv plan` chooses."""
    plan = ask(name)
    if plan["outcome"] == "blocked":
        return Choice("asks the user")
    return Choice(f"{plan['backend'] or 'package index'} ({plan['torch']})")


def ask(name: str, *words: str) -> dict[str, Any]:
    command = [TORCHENV, "plan", *words, "--host", str(HOSTS / f"{name}.json"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=TOP / "tests")
    plan: dict[str, Any] = json.loads(done.stdout)
    return plan


def judge(name: str, backend: str | None) -> Choice:
    """Say of a peer's pick whether the newest torch of that index would run on the host's devices."""
    if backend is None:
        return Choice(NOT_DRIVEN)
    releases = list_releases(backend)
    if not releases:
        return Choice(f"{backend} (older than torch 2.8: not judged)")
    newest = max(releases, key=lambda release: release.version)
    plan = ask(name, str(newest.version), "--backend", backend)
    rejected = [item for item in plan.get("rejected", ()) if item["backend"] == backend]
    if plan["outcome"] != "blocked" or not rejected:
        return Choice(f"{backend} ({newest.version})")
    return Choice(f"{backend} ({newest.version})", rejected[0]["code"])


def list_releases(backend: str) -> list[Release]:
    """Return the releases of the catalogue that have a build on the index of this name."""
    return [
        release
        for release in resources.catalogue().releases
        if any(build.tag == backend for build in release.backends)
    ]


def by_uv(host: Mapping[str, Any]) -> str | None:
    """Return the index that `--torch-backend=auto` asks first, told by variables what it would read."""
    variables = {}
    if host["nvidia"].get("driver"):
        variables["UV_CUDA_DRIVER_VERSION"] = host["nvidia"]["driver"]
    elif chips := [device["gfx"] for device in host["amd"]["devices"] if device.get("gfx")]:
        variables["UV_AMD_GPU_ARCHITECTURE"] = chips[0]
    elif any(host[maker]["status"] != "absent" for maker in ("nvidia", "amd", "intel")):
        return None
    with tempfile.TemporaryDirectory() as empty:
        words = ["pip", "compile", "-v", "--no-cache", "--torch-backend=auto", "--no-config", "-"]
        done = subprocess.run(
            [UV, *words],
            input="torch\n",
            env={**scrub_environ(os.environ), **variables, "UV_HTTP_TIMEOUT": "5", "UV_HTTP_RETRIES": "0"},
            cwd=empty,
            capture_output=True,
            text=True,
            check=False,
        )
    found = re.search(r"/whl/([a-z0-9.]+)/torch/", done.stderr)
    return found[1] if found else None


def by_light_the_torch(peers: str, host: Mapping[str, Any]) -> str | None:
    """Return the highest build that light-the-torch finds compatible and that an index has.

    That is how it sorts what it finds; it looks at the driver of NVIDIA alone.
    """
    with tempfile.TemporaryDirectory() as bin_directory:
        if driver := host["nvidia"].get("driver"):
            tool = Path(bin_directory, "nvidia-smi")
            tool.write_text(f"#!/bin/sh\nprintf 'driver_version\\n{driver}\\n'\n", "utf-8")
            tool.chmod(0o755)
        found = run(peers, LIGHT_THE_TORCH, path=bin_directory)
    compatible = found.split() if found else []
    return next((backend for backend in reversed(compatible) if list_releases(backend)), None)


def by_torchruntime(peers: str, host: Mapping[str, Any]) -> str | None:
    """Return what torchruntime chooses for cards of these names; None where its list has none of them."""
    words = [word for vendor, name in list_cards(host) for word in (vendor, name)]
    said = run(peers, TORCHRUNTIME, *words)
    return said.split()[-1] if said else None


def list_cards(host: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for maker, vendor in (("nvidia", "10de"), ("amd", "1002"), ("intel", "8086")):
        for device in host[maker]["devices"]:
            yield vendor, re.sub(r"^(NVIDIA|AMD|Intel(\(R\))?)\s+", "", device.get("name") or "?")


def run(python: str, program: str, *words: str, path: str = "/nonexistent") -> str | None:
    done = subprocess.run(
        [python, "-c", program, *words],
        env={"PATH": f"{path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or None if done.returncode == 0 else None


def page(rows: list[tuple[str, ...]], peers: str) -> Iterator[str]:
    """Yield the lines of docs/choices.md."""
    installed = "from importlib.metadata import version; print(version({!r}))"
    versions = {
        "torchenv": run(sys.executable, installed.format("torchenv")),
        "uv": run(sys.executable, installed.format("uv")),
        "light-the-torch": run(peers, installed.format("light-the-torch")),
        "torchruntime": run(peers, installed.format("torchruntime")),
    }
    yield "# Who picks what"
    yield ""
    yield INTRODUCTION.format(day=f"{datetime.now(UTC):%d %B %Y}", not_driven=NOT_DRIVEN)
    yield ""
    yield f"| host | {' | '.join(f'{tool} {version}' for tool, version in versions.items())} |"
    yield "|---|---|---|---|---|"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""
    yield "## What is counted"
    yield ""
    yield "| tool | driven for | picks a build that would not run |"
    yield "|---|---|---|"
    for at, tool in enumerate(versions, start=1):
        driven = [row for row in rows if row[at] != NOT_DRIVEN]
        yield f"| {tool} | {len(driven)} of {len(rows)} hosts | {sum('**' in row[at] for row in driven)} |"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
