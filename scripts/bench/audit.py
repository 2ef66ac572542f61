"""How long an audit takes beside byte-compiling the same files, and what one large file costs.

    python scripts/bench/audit.py FOLDER [--most 10000] [--repeat 3]
    python scripts/bench/audit.py --large

FOLDER holds Python files: the site-packages of an environment with torch serves. The files are
copied first, so that both programs read the same warm files and nothing of yours is written.
With --large, one file of 10 MB of each kind and a uv.lock of 500 packages are audited, each in a process of
its own. Prints one JSON document; the goals are a ratio of at most 1.2, and 5 s and 500 MB for a large file.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from torchenv.actions.audit import audit
from torchenv.audit import read_breakages
from torchenv.catalogue import resources

GOAL = 1.2
LARGE_S, LARGE_MB = 5.0, 500.0
SIZE = 10_000_000

# A line that a rule looks at, repeated until the file is large.
LARGE = {
    "a.py": "import torch\ntorch.load(path)\nx = torch.device('mps')\n",
    "largest.py": "import torch\ntorch.load(path)\nx = torch.device('mps')\n",
    "requirements.txt": "torch==2.15.0+cu126\n",
    "Dockerfile": "RUN pip install torch --index-url https://download.pytorch.org/whl/cu126\n",
    "a.sh": "pip install torch --index-url https://download.pytorch.org/whl/cu126\n",
    "a.md": "    pip install torch --index-url https://download.pytorch.org/whl/cu126\n",
    "a.yaml": "- run: pip install torch --index-url https://download.pytorch.org/whl/cu126\n",
    "a.cu": "curandCreateGenerator(&generator, type);\n",
    "CMakeLists.txt": "target_link_libraries(a curand)\n",
    "setup.cfg": "    torch==2.15.0+cu126\n",
}


def main() -> int:
    parser = argparse.ArgumentParser(description="time an audit beside compileall")
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--large", action="store_true", help="audit large files instead")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--most", type=int, default=10_000, help="how many Python files to take")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    if options.one is not None:
        return audit_one(options.one)
    if options.large:
        return audit_large()
    if options.folder is None:
        parser.error("name a folder, or --large")
    with tempfile.TemporaryDirectory() as place:
        corpus = Path(place)
        count = copy_python(options.folder, corpus, options.most)
        breakages = read_breakages(resources.section("audit"), resources.catalogue())
        findings = len(audit([corpus], breakages).findings)
        audits, compiles = best(
            options.repeat, lambda: audit([corpus], breakages), lambda: compile_all(corpus)
        )
    ratio = audits / compiles
    result = {
        "files": count,
        "cores": os.cpu_count(),
        "findings": findings,
        "audit_s": round(audits, 2),
        "compileall_s": round(compiles, 2),
        "ratio": round(ratio, 3),
        "goal": GOAL,
    }
    print(json.dumps(result))
    return 0 if ratio <= GOAL else 1


def audit_large() -> int:
    """Audit each large file in a process of its own; 1 where one takes too much."""
    results = {}
    with tempfile.TemporaryDirectory() as place:
        for file in write_large(Path(place)):
            done = subprocess.run(
                [sys.executable, __file__, "--one", str(file)], check=True, capture_output=True, text=True
            )
            results[file.name] = json.loads(done.stdout)
    is_good = all(cost["cpu_s"] <= LARGE_S and cost["peak_mb"] <= LARGE_MB for cost in results.values())
    print(json.dumps({"goal_s": LARGE_S, "goal_mb": LARGE_MB, "good": is_good, "files": results}, indent=1))
    return 0 if is_good else 1


def audit_one(file: Path) -> int:
    """Audit one file and print what that cost this process."""
    import resource

    breakages = read_breakages(resources.section("audit"), resources.catalogue())
    report = audit([file], breakages)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cost = {
        "bytes": file.stat().st_size,
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 2),
        "peak_mb": round(usage.ru_maxrss / 1024, 1),
        "findings": len(report.findings),
        "unread": [unread.why for unread in report.unread],
    }
    print(json.dumps(cost))
    return 0


def write_large(folder: Path) -> list[Path]:
    """Write a file of 10 MB of each kind, the largest Python that is read, and a lock of 500 packages."""
    for name, line in LARGE.items():
        size = 1_499_000 if name == "largest.py" else SIZE
        (folder / name).write_text(
            "[options]\ninstall_requires =\n" * (name == "setup.cfg") + line * (size // len(line))
        )
    cells = [
        {"cell_type": "code", "source": ["import torch\n", "torch.load(path)\n"], "outputs": ["x" * 5000]}
    ]
    (folder / "a.ipynb").write_text(json.dumps({"cells": cells * (SIZE // 5100)}))
    (folder / "a.json").write_text(
        json.dumps([{"FSDP_STATE_DICT_TYPE": "SHARDED_STATE_DICT"}] * (SIZE // 50))
    )
    wheel = '    { url = "https://files.example/a.whl", hash = "sha256:' + "0" * 64 + '", size = 1 },\n'
    packages = (
        f'[[package]]\nname = "package-{number}"\nversion = "1.{number}"\nwheels = [\n{wheel * 40}]\n'
        for number in range(499)
    )
    torch = '[[package]]\nname = "torch"\nversion = "2.15.0+cu126"\n'
    (folder / "uv.lock").write_text("version = 1\n" + torch + "".join(packages))
    return sorted(folder.iterdir())


def copy_python(folder: Path, corpus: Path, most: int) -> int:
    """Copy Python files with their folders, in the order of their names."""
    files = sorted(folder.rglob("*.py"))[:most]
    for file in files:
        copy = corpus / file.relative_to(folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
    return len(files)


def compile_all(corpus: Path) -> None:
    command = [sys.executable, "-m", "compileall", "-f", "-q", "-j0", str(corpus)]
    # Some files of real packages are for other Pythons: those errors are part of the work.
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL)


def best(repeat: int, *works: Callable[[], object]) -> list[float]:
    """Return the shortest run of each in seconds; they take turns, so that a busy hour hits all."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(repeat):
        for work, taken in zip(works, times, strict=True):
            start = time.perf_counter()
            work()
            taken.append(time.perf_counter() - start)
    return [min(taken) for taken in times]


if __name__ == "__main__":
    sys.exit(main())
