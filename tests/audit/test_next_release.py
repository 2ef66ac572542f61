"""A release that nobody has seen yet is audited for by data alone, and so are those on the way to it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.catalogue.test_own_file import NEXT

from torchenv.audit import Breakages, FileKind, Unread, audit_content, kind_of, read_breakages
from torchenv.catalogue import resources

CHANGES = """
[audit]
[[audit.release]]
version = "2.16.0"
before = "2.15.0"
loads-once = false
[[audit.release.removed-name]]
name = "torch.jit.script"
instead = "use `torch.export`"
[[audit.release.removed-header]]
name = "torch/csrc/jit/api/module.h"
[[audit.release.companion]]
name = "torchvision"
refuses = "<0.30"
why = "raises ImportError"
instead = "0.30.0"
[[audit.release.unbundled]]
library = "cufft"
package = "nvidia-cufft"
shown = "cuFFT"
host-calls = "cufft(?:Plan|Exec)"
[[audit.release.trainer]]
call = "newtrainer.Saver"
default = true
[audit.release.checkpoint]
savers = ["save"]
writers = []
harmless-writers = []
"""


@pytest.fixture
def facts(tmp_path: Path) -> tuple[Breakages, ...]:
    own = tmp_path / "catalogue.toml"
    own.write_text(NEXT + CHANGES, encoding="utf-8")
    return read_breakages(resources.section("audit", own), resources.catalogue(own))


def audited(path: str, text: str, facts: tuple[Breakages, ...]) -> list[tuple[str, str]]:
    kind = kind_of(path)
    assert kind is not None
    result = audit_content(path, kind, text.encode(), facts)
    assert not isinstance(result, Unread)
    return [(finding.rule, finding.why) for finding in result]


def test_the_newest_release_is_audited_for_and_those_since_2_14_are_on_the_way(
    facts: tuple[Breakages, ...],
) -> None:
    assert [(str(fact.version), fact.on_the_way) for fact in facts] == [("2.16.0", False), ("2.15.0", True)]
    target = facts[0]
    assert (target.default_backend, str(target.before)) == ("cu140", "2.15.0")
    assert (target.pythons, target.dropped_pythons[-1]) == (("3.12", "3.13"), "3.15")
    assert target.left["cu132"] == "2.15.0"


@pytest.mark.parametrize(
    ("path", "text", "rule", "why"),
    [
        (
            "a.py",
            "import torch\ntorch.jit.script(f)\n",
            "removed-name",
            "`torch.jit.script` is gone in torch 2.16.0",
        ),
        (
            "a.cpp",
            "#include <torch/csrc/jit/api/module.h>\n",
            "removed-header",
            "torch 2.16.0 no longer ships torch/csrc/jit/api/module.h",
        ),
        (
            "requirements.txt",
            "torch==2.16.0\ntorchvision==0.29.2\n",
            "companion",
            "`torchvision==0.29.2` beside `torch==2.16.0` raises ImportError",
        ),
        (
            "CMakeLists.txt",
            "target_link_libraries(mine PRIVATE CUDA::cufft)\n",
            "curand-build",
            "torch 2.16.0 neither brings nor loads the host library of cuFFT",
        ),
        (
            "requirements.txt",
            "torch==2.16.0+cu132\n",
            "removed-label",
            (
                "`torch==2.16.0+cu132` is built for cu132, for which torch 2.16.0 is not published"
                " (its last torch is 2.15.0)"
            ),
        ),
        (
            "a.py",
            "import newtrainer\nnewtrainer.Saver()\n",
            "checkpoint-trainer",
            (
                "newtrainer.Saver writes distributed checkpoints, whose metadata 2.15.0 and older cannot"
                " read once torch 2.16.0 wrote it"
            ),
        ),
    ],
)
def test_what_it_changes_is_found(
    facts: tuple[Breakages, ...], path: str, text: str, rule: str, why: str
) -> None:
    assert (rule, why) in audited(path, text, facts)


def test_what_the_release_on_the_way_changed_is_found_in_its_own_words(facts: tuple[Breakages, ...]) -> None:
    found = audited("a.py", "import torch.distributed as dist\ndist.init_process_group('nccl')\n", facts)
    assert {rule for rule, _ in found} == {"nccl-rewritten", "one-device"}
    assert all("torch 2.15.0" in why for _, why in found)


def test_what_is_published_is_asked_of_the_audited_release_alone(facts: tuple[Breakages, ...]) -> None:
    text = "pip install torch --index-url https://download.pytorch.org/whl/cu140\n"
    assert audited("setup.sh", text, facts) == []


def test_whoever_comes_from_2_15_is_not_told_of_its_changes(tmp_path: Path) -> None:
    own = tmp_path / "catalogue.toml"
    own.write_text(NEXT + CHANGES, encoding="utf-8")
    section, catalogue = resources.section("audit", own), resources.catalogue(own)
    assert [str(breakage.version) for breakage in read_breakages(section, catalogue, since="2.15")] == [
        "2.16.0"
    ]
    assert [str(breakage.version) for breakage in read_breakages(section, catalogue, "2.15")] == ["2.15.0"]


def test_a_release_without_any_known_change_is_audited_by_the_catalogue(tmp_path: Path) -> None:
    own = tmp_path / "catalogue.toml"
    own.write_text(NEXT, encoding="utf-8")
    facts = read_breakages(resources.section("audit", own), resources.catalogue(own), since="2.15")
    result = audit_content(
        "Dockerfile", FileKind.DOCKERFILE, b"FROM python:3.11\nRUN pip install torch\n", facts
    )
    assert not isinstance(result, Unread)
    assert [finding.rule for finding in result] == ["python-floor"]
