"""The same fault in the many ways in which people write it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

Found = Callable[[str, str, str | bytes], list[str]]

OLD = "https://download.pytorch.org/whl/cu126"

MATRIX = """
jobs:
  test:
    strategy:
      matrix:
        cuda: [cu126, cu132]
    steps:
      - run: pip install torch --index-url https://download.pytorch.org/whl/${{ matrix.cuda }}
"""

PLANTED = [
    ("removed-index", "README.md",
     f"    pip install torch \\\n        --index-url {OLD}\n", ["2:17 warning"]),
    ("checkpoint-trainer", "run.sh",
     "accelerate launch --fsdp_state_dict_type SHARDED_STATE_DICT train.py\n", ["1:19 warning"]),
    ("checkpoint-trainer", "run.sh",
     "accelerate launch --fsdp_state_dict_type=SHARDED_STATE_DICT train.py\n", ["1:19 warning"]),
    ("checkpoint-trainer", "README.md",
     "Run `accelerate launch --fsdp_state_dict_type SHARDED_STATE_DICT a.py`.\n", ["1:24 warning"]),
    ("checkpoint-trainer", "run.sh", "export FSDP_STATE_DICT_TYPE=SHARDED_STATE_DICT\n", ["1:8 warning"]),
    ("checkpoint-trainer", "a.py",
     'import os\nos.environ["FSDP_STATE_DICT_TYPE"] = "SHARDED_STATE_DICT"\n', ["2:12 warning"]),
    ("checkpoint-trainer", "axolotl.yaml",
     "fsdp_config:\n  fsdp_state_dict_type: SHARDED_STATE_DICT\n", ["2:25 warning"]),
    ("checkpoint-trainer", "axolotl.yaml",
     "fsdp_config:\n  state_dict_type: SHARDED_STATE_DICT\n", ["2:20 warning"]),
    ("checkpoint-trainer", "a.py",
     'from composer import Trainer\nTrainer(parallelism_config={"fsdp": {"state_dict_type": "sharded"}})\n',
     ["2:38 warning"]),
    ("checkpoint-trainer", "a.py", 'plugin.set_state_dict_type("SHARDED_STATE_DICT")\n', ["1:1 warning"]),
    ("checkpoint-trainer", "a.py",
     'from lightning.fabric import Fabric\nFabric(strategy="fsdp")\n', ["2:1 warning"]),
    ("checkpoint-trainer", "a.py", 'import lightning as L\nL.Fabric(strategy="fsdp")\n', ["2:1 warning"]),
    ("checkpoint-trainer", "accelerate.json",
     '{"fsdp_config": {"fsdp_state_dict_type": "SHARDED_STATE_DICT"}}', ["1:42 warning"]),
    ("checkpoint-save", "a.py", """
        import torch.distributed.checkpoint as dcp
        dcp.save(state, storage_writer=dcp.HuggingFaceStorageWriter("x") if hf else None)
     """, ["3:1 warning"]),
    ("checkpoint-save", "a.py", """
        from functools import partial
        import torch.distributed.checkpoint as dcp
        save = partial(dcp.save, checkpoint_id="x")
        save(state)
     """, ["5:1 warning"]),
    ("checkpoint-save", "a.py", """
        import torch.distributed.checkpoint as dcp
        getattr(dcp, "async_save")(state)
     """, ["3:1 warning"]),
    ("checkpoint-save", "a.py", """
        import torch.distributed.checkpoint as dcp
        class Trainer:
            def __init__(self):
                self.save_it = dcp.save
            def step(self):
                self.save_it(state)
     """, ["7:9 warning"]),
    ("checkpoint-trainer", "a.py", """
        from lightning.pytorch.strategies import FSDPStrategy
        class Ours(FSDPStrategy):
            pass
        Ours(state_dict_type="sharded")
     """, ["5:1 warning"]),
    ("removed-index", "Dockerfile",
     "ARG CUDA=cu126\nRUN pip install torch --index-url https://download.pytorch.org/whl/${CUDA}\n",
     ["2:35 warning"]),
    ("removed-index", "Dockerfile",
     f'RUN ["pip", "install", "torch", "--index-url", "{OLD}"]\n', ["1:48 warning"]),
    ("python-floor", "Dockerfile",
     "ARG PY=3.10\nFROM python:${PY}-slim\nRUN pip install torch\n", ["2:6 error"]),
    ("removed-index", ".github/workflows/a.yml", MATRIX, ["8:44 warning"]),
    ("removed-index", "pyproject.toml",
     '[project]\ndependencies = ["torch"]\n[tool.uv.pip]\ntorch-backend = "cu126"\n', ["4:18 warning"]),
    ("python-floor", "pixi.toml",
     '[project]\nrequires-python = ">=3.10"\n[pypi-dependencies]\ntorch = ">=2.15"\n', ["2:1 warning"]),
    ("companion", "pyproject.toml",
     '[tool.pixi.pypi-dependencies]\ntorch = "==2.15.0"\ntorchaudio = "==2.11.0"\n', ["3:1 error"]),
    ("companion", "pyproject.toml",
     '[tool.hatch.envs.gpu]\ndependencies = ["torch==2.15.0", "torchaudio==2.11.0"]\n', ["2:35 error"]),
    ("companion", "tox.ini",
     "[testenv]\ndeps =\n    torch==2.15.0\n    torchaudio==2.11.0\n", ["4:5 error"]),
    ("companion", "noxfile.py", """
        def tests(session):
            session.install("torch==2.15.0", "torchaudio==2.11.0")
     """, ["3:38 error"]),
    ("companion", "requirements.txt", "torch==2.15.0\ntorchaudio==2.11\n", ["2:1 error"]),
    ("removed-label", "requirements.txt",
     "https://download.pytorch.org/whl/cu126/torch-2.15.0%2Bcu126-cp312-cp312-linux_x86_64.whl\n",
     ["1:1 error"]),
    ("nccl-switch", "train.ps1", '$env:TORCH_DIST_USE_NCCL2 = "0"\n', ["1:1 warning"]),
    ("nccl-switch", "train.bat", "set TORCH_DIST_USE_NCCL2=0\n", ["1:5 warning"]),
    ("nccl-type", "a.py",
     "import torch.distributed as dist\nok = type(pg) is dist.ProcessGroupNCCL\n", ["2:6 error"]),
    ("nccl-type", "a.py", """
        import torch.distributed as dist
        match pg:
            case dist.ProcessGroupNCCL():
                pass
     """, ["4:10 error"]),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "path", "text", "places"), PLANTED)
def test_it_is_found_however_it_is_written(
    found: Found, rule: str, path: str, text: str, places: list[str]
) -> None:
    assert found(rule, path, text) == places


def test_a_file_in_utf_16_is_read(found: Found) -> None:
    text = "torch==2.15.0\r\ntorchaudio==2.11.0\r\n"
    assert found("companion", "requirements.txt", text.encode("utf-16")) == ["2:1 error"]


def test_json_may_be_indented_by_tabs(found: Found) -> None:
    text = json.dumps({"fsdp_config": {"fsdp_state_dict_type": "SHARDED_STATE_DICT"}}, indent="\t")
    assert found("checkpoint-trainer", "accelerate.json", text) == ["3:27 warning"]
