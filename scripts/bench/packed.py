"""How long `import torch` takes from a slow folder, unpacked there and packed into one file.

    python scripts/bench/packed.py ENVIRONMENT [--delay 2] [--repeat 3]

The folder is slow as shared storage is: a library that is loaded before all others (LD_PRELOAD) delays each
open of a file below it by some milliseconds, and counts them. What the system's own loader opens, shared
libraries, is not delayed: the difference is rather larger than what is measured. ENVIRONMENT has torch, and
is only read. Measured are:

- unpacked: the environment on the slow folder
- first: `torchenv run --packed` on a node that has not unpacked it yet
- packed: `torchenv run --packed` on a node that has

Prints one JSON document. It needs a C compiler and zstd.
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
from collections.abc import Mapping
from pathlib import Path

SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int opened;

static void wait_for(const char *path) {
    const char *slow = getenv("SLOW_FOLDER"), *delay = getenv("SLOW_MICROSECONDS");
    if (!slow || !delay || !path || strncmp(path, slow, strlen(slow)) != 0) return;
    usleep(atoi(delay));
    opened++;
}
__attribute__((destructor)) static void tell(void) {
    const char *count = getenv("SLOW_COUNT");
    FILE *file = opened && count ? fopen(count, "a") : NULL;
    if (file) { fprintf(file, "%d\n", opened); fclose(file); }
}
#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        static int (*real)(const char *, int, ...); \
        if (!real) real = dlsym(RTLD_NEXT, #name); \
        va_list more; va_start(more, flags); mode_t mode = va_arg(more, mode_t); va_end(more); \
        wait_for(path); \
        return real(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)
FILE *fopen(const char *path, const char *mode) {
    static FILE *(*real)(const char *, const char *);
    if (!real) real = dlsym(RTLD_NEXT, "fopen");
    wait_for(path);
    return real(path, mode);
}
FILE *fopen64(const char *path, const char *mode) {
    static FILE *(*real)(const char *, const char *);
    if (!real) real = dlsym(RTLD_NEXT, "fopen64");
    wait_for(path);
    return real(path, mode);
}
"""

TORCHENV = Path(sys.executable).with_name("torchenv")
IMPORT = ("python", "-B", "-c", "import torch")


def main() -> int:
    parser = argparse.ArgumentParser(description="time `import torch` from a slow folder")
    parser.add_argument("environment", type=Path)
    parser.add_argument("--delay", type=float, default=2.0, help="milliseconds for each open")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        shared, node = Path(place, "shared"), Path(place, "node")
        shared.mkdir()
        node.mkdir()
        slow = {"LD_PRELOAD": str(compile_shim(Path(place))), "SLOW_MICROSECONDS": str(options.delay * 1000)}
        slow["SLOW_FOLDER"] = str(options.environment.resolve())
        environ = {
            **os.environ,
            "TMPDIR": str(node),
            "HOME": place,
            "TORCHENV_HOME": str(shared / "workspace"),
        }
        pack = shared / "env.tar.zst"
        run((str(TORCHENV), "adopt", str(options.environment)), environ)
        packing = run((str(TORCHENV), "pack", "1", str(pack)), environ)
        unpacked = ("run", "-e", "1", "--", *IMPORT)
        packed = ("run", "--packed", str(pack), "--", *IMPORT)
        # What the system has read is in memory for both.
        run((str(TORCHENV), *unpacked), environ)
        counts = Path(place, "counts")
        slow["SLOW_COUNT"] = str(counts)
        slowed = best(options.repeat, (str(TORCHENV), *unpacked), {**environ, **slow})
        opens = {"unpacked": count_last(counts)}
        slow["SLOW_FOLDER"] = str(shared)
        first = run((str(TORCHENV), *packed), {**environ, **slow})
        again = best(options.repeat, (str(TORCHENV), *packed), {**environ, **slow})
        opens["packed"] = count_last(counts)
        result = {
            "delayed opens of a start": opens,
            "delay in milliseconds": options.delay,
            "seconds": {
                "pack": round(packing, 1),
                "unpacked": round(slowed, 2),
                "first": round(first, 2),
                "packed": round(again, 2),
            },
            "ratio of unpacked to packed": round(slowed / again, 2),
            "GiB": round(pack.stat().st_size / 2**30, 2),
        }
        shutil.rmtree(node)
    print(json.dumps(result))
    return 0


def compile_shim(directory: Path) -> Path:
    """Compile what delays each open below a folder."""
    source, library = directory / "slow.c", directory / "slow.so"
    source.write_text(SHIM, "utf-8")
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", library, source, "-ldl"], check=True)
    return library


def count_last(counts: Path) -> int:
    """Return how many opens the programs of the last runs counted, and forget them."""
    found = [int(line) for line in counts.read_text("utf-8").split()] if counts.exists() else [0]
    counts.unlink(missing_ok=True)
    return max(found)


def best(rounds: int, command: tuple[str, ...], environ: Mapping[str, str]) -> float:
    """Return the fewest seconds of several runs."""
    return min(run(command, environ) for _ in range(rounds))


def run(command: tuple[str, ...], environ: Mapping[str, str]) -> float:
    """Return the seconds that a command takes; a failure ends the measurement."""
    start = time.perf_counter()
    done = subprocess.run(command, env=environ, text=True, capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
