"""Requirements as `pip freeze` writes them in a conda environment: names with folders that exist nowhere."""

from __future__ import annotations

from pathlib import Path

from tests.support.index import Index
from tests.support.terminal import Terminal
from tests.support.wheels import Wheel

FREEZE = """\
certifi @ file:///home/conda/feedstock_root/build_artifacts/certifi_1725278078093/work/certifi
exceptiongroup @ file:///croot/exceptiongroup_1706031385326/work
numpy==2.3.0
packaging @ file:///home/conda/feedstock_root/build_artifacts/bld/rattler-build_packaging_1745345660/work
PyYAML @ file:///D:/bld/pyyaml_1692737288530/work
torch @ file:///opt/conda/conda-bld/pytorch_1728945381029/work
transformers==4.57.0
"""


def test_the_packages_are_asked_for_by_name_and_torch_is_left_to_the_plan(
    terminal: Terminal, index: Index, tmp_path: Path
) -> None:
    for name in ("certifi", "exceptiongroup", "packaging", "pyyaml"):
        index.add("simple", Wheel(name=name, version="1.0"))
    index.add("simple", Wheel(name="transformers", version="4.57.0"))
    (terminal.cwd / "requirements.txt").write_text(FREEZE, "utf-8")
    ended = terminal.create("--from", "requirements.txt", "--json")
    assert ended.code == 0, ended.err
    lock = (terminal.workspace / "locks" / "pylock.1.toml").read_text("utf-8")
    for name in ("certifi", "exceptiongroup", "numpy", "packaging", "pyyaml", "transformers"):
        assert f'name = "{name}"' in lock
    assert ended.json["torch"] == "2.15.0+cpu"
    for name in ("certifi", "exceptiongroup", "packaging", "PyYAML"):
        assert f"{name} was built by conda, in a folder that is gone: any version is taken" in ended.err
    assert "torch was built by conda, in a folder that is gone: the plan chooses its version" in ended.err
