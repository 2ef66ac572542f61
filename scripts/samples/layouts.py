"""Write the saves of tests/data/checkpoints/layouts, each by the package that writes it in a training.

    python scripts/samples/layouts.py WRITER DIRECTORY

Needs torch 2.15.0 and the writer's own package; no GPU. The models are tiny, the folders and the names are
the writer's own. Saves hold the directory that they were written to, so write them to one that says nothing
of your machine, such as /srv/train.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

RANKS = 2
_SMALL = 64 << 10  # bytes; a file of a sample that has more is a mistake


def make_model() -> Any:
    """Return a model with a few weights, the same in every process."""
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))


def train(model: Any, optimizer: Any) -> None:
    """Do one step."""
    import torch

    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def join_ranks() -> None:
    """Join the processes of this run."""
    import torch.distributed as dist

    dist.init_process_group("gloo")


def shard(model: Any) -> Any:
    """Return the model split among the ranks by FSDP2, on the CPU."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    return fully_shard(model, mesh=init_device_mesh("cpu", (RANKS,)))


def write_lightning_files() -> None:
    """Let lightning's ModelCheckpoint write `epoch=0-step=1.ckpt` and `last.ckpt`."""
    train_lightning({"devices": 1}, save_last=True)


def write_lightning_folders() -> None:
    """Let lightning's ModelParallelStrategy write folders of DCP with a `meta.pt`."""
    from lightning.pytorch.strategies import ModelParallelStrategy

    strategy = ModelParallelStrategy(
        data_parallel_size=RANKS, tensor_parallel_size=1, process_group_backend="gloo"
    )
    train_lightning({"devices": RANKS, "strategy": strategy}, save_last=False)


def train_lightning(trainer: dict[str, Any], *, save_last: bool) -> None:
    """Train two steps on the CPU, and save at each."""
    import lightning.pytorch as pl
    import torch
    from lightning.pytorch.callbacks import ModelCheckpoint

    class Module(pl.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = make_model()

        def configure_model(self) -> None:
            if "strategy" in trainer:
                shard(self.model)

        def training_step(self, batch: Any, _: int) -> Any:
            return self.model(batch).sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=0.01)

    saving = ModelCheckpoint(every_n_train_steps=1, save_top_k=-1, save_last=save_last)
    pl.Trainer(
        accelerator="cpu", max_steps=2, callbacks=[saving], enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=".", logger=pl.loggers.CSVLogger("."), **trainer,
    ).fit(Module(), torch.utils.data.DataLoader(torch.ones(4, 4), batch_size=2))  # fmt: skip


def write_accelerate() -> None:
    """Let Accelerator.save_state write `checkpoints/checkpoint_N`."""
    import torch
    from accelerate import Accelerator
    from accelerate.utils import ProjectConfiguration

    settings = ProjectConfiguration(project_dir=".", automatic_checkpoint_naming=True)
    accelerator = Accelerator(cpu=True, project_config=settings)
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer)
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    for _ in range(2):
        train(model, optimizer)
        accelerator.save_state()


def write_accelerate_fsdp() -> None:
    """Let accelerate write a model sharded by FSDP2: `pytorch_model_fsdp_0`, `optimizer_0`.

    Its Accelerator takes FSDP on accelerators only, so the two functions that its save_state calls for that
    are called here, and the random states and the scheduler are written by the same function as there.
    """
    import torch
    from accelerate.checkpointing import save_accelerator_state
    from accelerate.state import PartialState
    from accelerate.utils import FullyShardedDataParallelPlugin
    from accelerate.utils.fsdp_utils import save_fsdp_model, save_fsdp_optimizer

    join_ranks()
    state: Any = PartialState(cpu=True, backend="gloo")
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, state_dict_type="SHARDED_STATE_DICT")
    model = shard(make_model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer)
    for number in range(2):
        train(model, optimizer)
        directory = f"checkpoints/checkpoint_{number}"
        save_fsdp_model(plugin, state, model, directory)
        save_fsdp_optimizer(plugin, state, optimizer, model, directory)
        save_accelerator_state(directory, [], [], [scheduler], [], state.process_index, number)


def write_transformers() -> None:
    """Let the Trainer of transformers write `checkpoint-N`."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

    config = LlamaConfig(
        vocab_size=8, hidden_size=4, intermediate_size=4, num_hidden_layers=1, num_attention_heads=1
    )
    rows = [{"input_ids": torch.arange(4), "labels": torch.arange(4)} for _ in range(4)]
    arguments = TrainingArguments(
        output_dir="outputs", max_steps=2, save_steps=1, use_cpu=True, report_to=[], logging_strategy="no",
        per_device_train_batch_size=2, disable_tqdm=True,
    )  # fmt: skip
    Trainer(LlamaForCausalLM(config), arguments, train_dataset=rows).train()


def write_deepspeed() -> None:
    """Let the engine of DeepSpeed write `global_stepN` with ZeRO 2, and `latest`.

    The scripts of its own that it puts beside them are deleted again.
    """
    import deepspeed
    import torch

    model = make_model()
    deepspeed.init_distributed(dist_backend="gloo", dist_init_required=True)
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=0.01),
        config={
            "train_micro_batch_size_per_gpu": 2,
            "zero_optimization": {"stage": 2},
            "zero_allow_untested_optimizer": True,
        },
    )
    for _ in range(2):
        engine.backward(engine(torch.ones(2, 4)).sum())
        engine.step()
        engine.save_checkpoint("runs/tiny")
    if engine.global_rank == 0:
        for script in Path("runs/tiny").glob("*.py"):
            script.unlink()


def write_megatron() -> None:
    """Let megatron-core write `iter_N` in the form torch_dist.

    The tracker is Megatron-LM's, whose training loop is no package: `save_checkpoint` of
    megatron/training/checkpointing.py writes the number of the iteration there, without a line's end.
    """
    join_ranks()
    for step in (10, 20):
        directory = Path(f"runs/tiny/iter_{step:07d}")
        save_megatron(directory, step)
        Path("runs/tiny/latest_checkpointed_iteration.txt").write_text(str(step))


def save_megatron(directory: Path, step: int) -> None:
    """Save a tensor that is split among the ranks, and what all share."""
    import torch
    import torch.distributed as dist
    from megatron.core import dist_checkpointing
    from megatron.core.dist_checkpointing import ShardedTensor

    # It asks for the device of this process, which is the CPU.
    torch.cuda.current_device = lambda: torch.device("cpu")
    torch.cuda.synchronize = lambda *_: None
    rank = dist.get_rank()
    if rank == 0:
        directory.mkdir(parents=True)
    dist.barrier()
    weight = torch.arange(6.0).reshape(2, 3) + rank
    state = {
        "model": {"weight": ShardedTensor.from_rank_offsets("model.weight", weight, (0, rank, RANKS))},
        "iteration": step,
        "checkpoint_version": 3.0,
    }
    dist_checkpointing.save(state, str(directory))


def write_torchtitan() -> None:
    """Let the CheckpointManager of torchtitan write `checkpoint/step-N`."""
    from torchtitan.components.checkpoint import CheckpointManager

    join_ranks()
    import torch

    model = shard(make_model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    train(model, optimizer)

    class State:
        """What torchtitan asks of each part: its state, and to take one."""

        def __init__(self, state: dict[str, Any]) -> None:
            self.state = state

        def state_dict(self) -> dict[str, Any]:
            return self.state

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.state = state

    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

    config = CheckpointManager.Config(enable=True, interval=1, keep_latest_k=0, last_save_model_only=False)
    manager = CheckpointManager(
        config,
        dataloader=State({"position": 4}),
        model_parts=[model],
        optimizers=State(get_optimizer_state_dict(model, optimizer)),
        lr_schedulers=State({"last_epoch": 1}),
        states={"train_state": State({"step": torch.tensor(1)})},
        sd_adapter=None,
        base_folder="outputs",
    )
    for step in (1, 2):
        manager.save(step, last_step=step == 2)


def write_torchtune() -> None:
    """Let the FullModelHFCheckpointer of torchtune write `epoch_N` and `recipe_state`."""
    import importlib.machinery
    import json
    import types

    import torch
    from safetensors.torch import save_file

    class Absent(types.ModuleType):
        """A module of torchao, which fails beside torch 2.15: torchtune imports it and needs none here."""

        def __getattr__(self, name: str) -> type:
            if name.startswith("__"):
                raise AttributeError(name)
            methods = {"__init__": lambda *_: None, "__call__": lambda _, wrapped: wrapped}
            return type(name, (), methods)

    class AbsentFinder:
        """Finds every module of torchao as one that holds nothing."""

        @staticmethod
        def find_spec(name: str, *_: Any) -> Any:
            if name.partition(".")[0] != "torchao":
                return None
            return importlib.machinery.ModuleSpec(name, AbsentFinder(), is_package=True)  # type: ignore[arg-type]

        @staticmethod
        def create_module(spec: Any) -> Any:
            return Absent(spec.name)

        @staticmethod
        def exec_module(module: Any) -> None:
            module.__version__ = "0.12.0"

    sys.meta_path.insert(0, AbsentFinder)
    from torchtune.training import FullModelHFCheckpointer

    base = Path("base")
    base.mkdir()
    names = ("model.embed_tokens.weight", "model.norm.weight", "lm_head.weight")
    weights = {name: torch.ones(4, 4) if "norm" not in name else torch.ones(4) for name in names}
    save_file(weights, base / "model.safetensors", metadata={"format": "pt"})
    heads = {"num_attention_heads": 1, "num_key_value_heads": 1, "hidden_size": 4, "head_dim": 4}
    (base / "config.json").write_text(json.dumps(heads))
    writer = FullModelHFCheckpointer(
        checkpoint_dir="base", checkpoint_files=["model.safetensors"], model_type="LLAMA2", output_dir="out"
    )
    model = writer.load_checkpoint()["model"]
    for epoch in range(2):
        state = {"model": dict(model), "optimizer": {}, "seed": 0, "epochs_run": epoch + 1, "total_epochs": 2}
        writer.save_checkpoint(
            {**state, "max_steps_per_epoch": 1}, epoch=epoch, intermediate_checkpoint=epoch == 0
        )
    shutil.rmtree(base)


def write_nemo() -> None:
    """Write the layout of NeMo 2 around the weights of megatron-core.

    Its writer is no part of the package any more. From the public source of NeMo 2 (model_checkpoint.py of
    nemo/lightning/pytorch/callbacks, nemo/lightning/ckpt_utils.py): the folder is called
    NAME--METRIC-step=N-consumed_samples=M and holds `weights` of megatron-core and a `context` for the
    configuration; `NAME-unfinished` is beside it until its save has ended.
    """
    join_ranks()
    import torch.distributed as dist

    for step, loss, unfinished in ((9, 3.25, False), (19, 2.5, False), (29, 2.25, True)):
        directory = Path(
            f"tiny/checkpoints/tiny--val_loss={loss:.2f}-step={step}-consumed_samples={step * 4}.0"
        )
        save_megatron(directory / "weights", step)
        if dist.get_rank() == 0:
            (directory / "context").mkdir()
            (directory / "context" / "model.yaml").write_text("_target_: tiny.Model\n")
            (directory / "context" / "io.json").write_text("{}\n")
            if unfinished:
                directory.with_name(f"{directory.name}-unfinished").write_text("")


WRITERS: dict[str, tuple[Callable[[], None], int]] = {
    "lightning": (write_lightning_files, 1),
    "lightning-folders": (write_lightning_folders, RANKS),
    "accelerate": (write_accelerate, 1),
    "accelerate-fsdp": (write_accelerate_fsdp, RANKS),
    "transformers": (write_transformers, 1),
    "deepspeed": (write_deepspeed, RANKS),
    "megatron": (write_megatron, RANKS),
    "torchtitan": (write_torchtitan, RANKS),
    "torchtune": (write_torchtune, 1),
    "nemo": (write_nemo, RANKS),
}


def start_ranks(writer: str, directory: Path, ranks: int) -> None:
    """Run this script once a rank, and wait for all."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks)}
    shared |= {
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
        "DS_ACCELERATOR": "cpu",
    }
    shared |= {
        "TOKENIZERS_PARALLELISM": "false",
        "LOCAL_WORLD_SIZE": str(ranks),
        "TORCHELASTIC_RUN_ID": "samples",
    }
    command = [sys.executable, "-W", "ignore", __file__, writer, str(directory)]
    started = [
        subprocess.Popen(
            command,
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank), "GROUP_RANK": "0"},
            cwd=directory,
        )
        for rank in range(ranks)
    ]
    codes = [process.wait() for process in started]
    if any(codes):
        raise SystemExit(f"{writer}: the ranks ended with {codes}")


def find_mistakes(directory: Path) -> Iterator[str]:
    """Yield what does not belong into a repository: a large file, this machine's name."""
    names = {socket.gethostname(), str(Path.home())} - {"localhost", "node"}
    for path in directory.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            if len(data) > _SMALL:
                yield f"{path} has {len(data)} bytes"
            yield from (f"{path} names {name}" for name in names if name.encode() in data)


def main() -> None:
    """Write the saves of one writer."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("writer", choices=WRITERS)
    parser.add_argument("directory", type=Path)
    flags = parser.parse_args()
    write, ranks = WRITERS[flags.writer]
    if "RANK" in os.environ:
        socket.gethostname = lambda: "node"
        write()
        sys.stdout.flush()
        # Threads of process groups may abort an interpreter that ends.
        os._exit(0)
    directory = flags.directory / flags.writer
    directory.mkdir(parents=True)
    start_ranks(flags.writer, directory, ranks)
    mistakes = list(find_mistakes(directory))
    if mistakes:
        raise SystemExit("\n".join(mistakes))


if __name__ == "__main__":
    main()
