"""Trainers that write distributed checkpoints."""

from __future__ import annotations

from collections.abc import Callable

Found = Callable[[str, str, str | bytes], list[str]]


def test_a_sharded_strategy_is_found(found: Found) -> None:
    text = """
        from lightning.pytorch.strategies import FSDPStrategy
        FSDPStrategy(state_dict_type="sharded")
    """
    assert found("checkpoint-trainer", "a.py", text) == ["3:1 warning"]


def test_the_default_of_this_strategy_is_full(found: Found) -> None:
    text = """
        from lightning.pytorch.strategies import FSDPStrategy
        FSDPStrategy()
    """
    assert found("checkpoint-trainer", "a.py", text) == []


def test_the_default_of_the_other_is_sharded(found: Found) -> None:
    text = """
        from lightning.fabric.strategies import FSDPStrategy
        FSDPStrategy()
        FSDPStrategy(state_dict_type="full")
    """
    assert found("checkpoint-trainer", "a.py", text) == ["3:1 warning"]


def test_the_older_name_of_the_package_is_the_same(found: Found) -> None:
    text = """
        import pytorch_lightning as pl
        pl.strategies.ModelParallelStrategy()
        pl.strategies.ModelParallelStrategy(save_distributed_checkpoint=False)
    """
    assert found("checkpoint-trainer", "a.py", text) == ["3:1 warning"]


def test_an_enumeration_is_followed(found: Found) -> None:
    text = """
        from accelerate import FullyShardedDataParallelPlugin as Plugin
        from torch.distributed.fsdp import StateDictType
        Plugin(state_dict_type=StateDictType.SHARDED_STATE_DICT)
        Plugin(state_dict_type=StateDictType.FULL_STATE_DICT)
    """
    assert found("checkpoint-trainer", "a.py", text) == ["4:1 warning"]


def test_a_configuration_of_accelerate_is_read(found: Found) -> None:
    text = """
        fsdp_config:
          fsdp_state_dict_type: SHARDED_STATE_DICT
    """
    assert found("checkpoint-trainer", "config.yaml", text) == ["3:25 warning"]


def test_a_full_configuration_is_right(found: Found) -> None:
    text = """
        fsdp_config:
          fsdp_state_dict_type: FULL_STATE_DICT
    """
    assert found("checkpoint-trainer", "config.yaml", text) == []
