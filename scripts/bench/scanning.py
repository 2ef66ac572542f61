"""What looking through training runs costs, against `find` over the same folders."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from scripts.bench.measuring import TOP, TORCHENV, Bench, Row, compare, fresh, seconds

SAMPLE = TOP / "tests" / "data" / "checkpoints" / "cases" / "dcp-2.15.0"
SAVES_OF_A_RUN = 1000

# A folder that changed a moment ago is looked at again.
SETTLED = time.time() - 3600


def measure(bench: Bench) -> Iterator[Row]:
    """Yield the rows of a cold and of an unchanged scan, of 100 to 100,000 saves."""
    for count in (100,) if bench.quick else (100, 10_000, 100_000):
        work = fresh(bench.directory / "scanning")
        runs = work / "runs"
        make_saves(runs, count)
        root = work / "workspace"
        scan = partial(bench.run, [*TORCHENV, "checkpoints", "scan", "--root", root, runs])
        find = partial(bench.run, ["find", runs])

        def scan_cold(root: Path = root, scan: partial[str] = scan) -> None:
            shutil.rmtree(root, ignore_errors=True)
            scan()

        cold = seconds(bench, scan_cold, rounds=1 if count > 10_000 else 3)
        yield Row(
            what=f"`checkpoints scan` of {count:,} saves, cold",
            against="",
            values=tuple(taken / count * 1000 for taken in cold),
            bar=0.3 if count >= 10_000 else None,
            unit="ms a save",
            note="The metadata of each save is read and checked whole, on every core.",
        )
        yield Row(
            what=f"`checkpoints scan` of {count:,} saves, unchanged",
            against="`find`",
            values=compare(bench, scan, find, rounds=3),
            bar=2.0 if count >= 10_000 else None,
            note=(
                "`find` asks only for names; a scan asks each file for its size and time, and writes nothing"
                " where all is as before. Python's own start-up is part of it."
            ),
        )
        shutil.rmtree(work)
    yield from scan_bucket(bench)


def scan_bucket(bench: Bench) -> Iterator[Row]:
    """Yield the rows of a bucket that moto serves on this machine, against no more than listing it."""
    import fsspec
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    variables = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    count = bench.size(500, 20)
    try:
        # Every S3 client takes its server and its keys from these.
        os.environ.update(variables)
        store = fsspec.filesystem("s3")
        store.mkdir("runs")
        for number in range(count):
            for path in SAMPLE.iterdir():
                store.pipe_file(f"runs/a/step-{number}/{path.name}", path.read_bytes())
        work = fresh(bench.directory / "bucket")
        scan = partial(
            bench.run,
            [*TORCHENV, "checkpoints", "scan", "--root", work / "workspace", "s3://runs"],
            variables=variables,
        )

        def scan_cold() -> None:
            shutil.rmtree(work / "workspace", ignore_errors=True)
            scan()

        listing = partial(
            bench.run,
            [sys.executable, "-c", "import fsspec; fsspec.filesystem('s3').find('runs')"],
            variables=variables,
        )
        for what, act in (("cold", scan_cold), ("unchanged", scan)):
            yield Row(
                what=f"`checkpoints scan` of {count} saves in a bucket, {what}",
                against="listing it with fsspec",
                values=compare(bench, act, listing, rounds=3),
            )
    finally:
        server.stop()


def make_saves(runs: Path, count: int) -> None:
    """Make runs of a thousand saves at most, each with a `.metadata` and two shards."""
    for number in range(count):
        target = runs / f"run-{number // SAVES_OF_A_RUN:03}" / f"step-{number % SAVES_OF_A_RUN * 100}"
        shutil.copytree(SAMPLE, target)
        shutil.copyfile(target / "__0_0.distcp", target / "__1_0.distcp")
    for folder, _, files in os.walk(runs):
        for path in (folder, *(f"{folder}/{name}" for name in files)):
            os.utime(path, (SETTLED, SETTLED))
