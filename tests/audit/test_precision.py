"""What looks like a finding and is none: remedies taken, jobs and stages without torch."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Found = Callable[[str, str, str | bytes], list[str]]

UV_EXTRAS = """
[project]
dependencies = []
[project.optional-dependencies]
cu126 = ["torch==2.14.1"]
cu132 = ["torch>=2.15"]
[tool.uv.sources]
torch = [
    { index = "pytorch-cu126", extra = "cu126" },
    { index = "pytorch-cu132", extra = "cu132" },
]
[[tool.uv.index]]
name = "pytorch-cu126"
url = "https://download.pytorch.org/whl/cu126"
explicit = true
[[tool.uv.index]]
name = "pytorch-cu132"
url = "https://download.pytorch.org/whl/cu132"
explicit = true
"""

LINT = """
jobs:
  lint:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.10"
          cache: pip
      - run: pip install ruff mypy
      - run: |
          ruff check .
          python -m mypy src
"""

NPM = """
jobs:
  docs:
    runs-on: macos-14
    steps:
      - run: npm ci
      - run: npm test
"""

STAGES = """
FROM python:3.10 AS assets
RUN pip install ruff && npm run build
FROM python:3.12
RUN pip install torch==2.15.0
"""

NEAR = [
    ("python-floor", "pyproject.toml", """
[project]
requires-python = ">=3.10"
dependencies = [
    "torch<2.15; python_version < '3.11'",
    "torch>=2.15; python_version >= '3.11'",
]
"""),
    ("removed-index", "pyproject.toml", UV_EXTRAS),
    ("python-floor", ".github/workflows/lint.yml", LINT),
    ("mps-floor", ".github/workflows/docs.yml", NPM),
    ("companion", "requirements.txt", """
torch==2.15.0; python_version >= "3.11"
torch==2.14.1; python_version < "3.11"
torchaudio==2.11.1; python_version >= "3.11"
torchaudio==2.11.0; python_version < "3.11"
"""),
    ("mps-floor", "a.py", "import torch\nif torch.device('mps') == device:\n    pass\n"),
    ("mps-floor", "a.py", "import torch\nif device.type == 'mps':\n    pass\n"),
    ("one-device", "a.py", """
import torch, torch.distributed as dist
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
"""),
    ("checkpoint-save", "a.py", """
import torch.distributed.checkpoint as dcp
dcp.save(state, storage_writer=dcp.HuggingFaceStorageWriter("x"))
"""),
    ("checkpoint-trainer", "a.py", 'x = {"state_dict_type": "full"}\n'),
    ("checkpoint-trainer", "run.sh", "accelerate launch --fsdp_state_dict_type FULL_STATE_DICT train.py\n"),
    ("removed-index", "Dockerfile", """
ARG CUDA=cu132
RUN pip install torch --index-url https://download.pytorch.org/whl/${CUDA}
"""),
    ("removed-label", "requirements.txt",
     "torch @ https://download.pytorch.org/whl/cu126/torch-2.14.1%2Bcu126-cp312-cp312-linux_x86_64.whl\n"),
    ("nccl-type", "a.py", "import torch.distributed as dist\nassert type(x) is dist.ProcessGroup\n"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "path", "text"), NEAR)
def test_what_is_right_is_not_found(found: Found, rule: str, path: str, text: str) -> None:
    assert found(rule, path, text) == []


def test_a_stage_that_torch_never_comes_into_may_have_an_old_python(found: Found) -> None:
    assert found("python-floor", "Dockerfile", STAGES) == []


def test_a_stage_whose_content_is_taken_along_may_not(found: Found) -> None:
    text = "FROM python:3.10 AS build\nRUN pip install torch\nFROM python:3.12\nCOPY --from=build /app /app\n"
    assert found("python-floor", "Dockerfile", text) == ["1:6 error"]


def test_a_job_that_installs_the_project_may_not(found: Found) -> None:
    text = LINT.replace("pip install ruff mypy", "pip install -e .")
    assert found("python-floor", ".github/workflows/test.yml", text) == ["9:27 error"]


def test_a_mac_that_runs_the_tests_is_found(found: Found) -> None:
    text = NPM.replace("npm test", "pytest tests")
    assert found("mps-floor", ".github/workflows/test.yml", text) == ["4:14 warning"]


def test_only_a_device_that_may_be_another_is_a_warning(found: Found) -> None:
    start = "import torch, torch.distributed as dist\n"
    group = "dist.init_process_group('nccl')\n"
    assert found("one-device", "a.py", start + group) == ["2:1 note"]
    assert found("one-device", "a.py", f"{start}torch.cuda.set_device(gpu)\n{group}") == ["3:1 note"]
    assert found("one-device", "a.py", f"{start}torch.cuda.set_device(rank % 8)\n{group}") == ["3:1 note"]
    assert found("one-device", "a.py", f"{start}torch.cuda.set_device(0)\n{group}") == ["3:1 warning"]
    assert found("one-device", "a.py", f"{start}torch.cuda.set_device(rank // 2)\n{group}") == ["3:1 warning"]
