"""An index that does not answer is known within seconds."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from torchenv.index.availability import why_unreachable
from torchenv.system.process import Programs

if TYPE_CHECKING:
    from tests.support.index import Index

run = Programs({"PATH": os.environ["PATH"]})


def test_any_answer_means_that_the_index_is_there(index: Index) -> None:
    assert why_unreachable(run, f"{index.packages}/torch/") is None
    assert why_unreachable(run, f"{index.backend('cu999')}/torch/") is None


def test_a_refused_connection_is_told() -> None:
    said = why_unreachable(run, "http://127.0.0.1:9/whl/cpu")
    assert said == "[Errno 111] Connection refused"


def test_silence_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        said = why_unreachable(run, f"http://127.0.0.1:{port}/", seconds=1)
    assert said in {"timed out", "no answer within 1 s"}
