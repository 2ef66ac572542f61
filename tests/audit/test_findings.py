"""What holds for every rule: suppression, places, files that cannot be read, sound needles."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from torchenv.audit import (
    RULES,
    AuditReport,
    Breakages,
    FileKind,
    Finding,
    Severity,
    Unread,
    audit_content,
    kind_of,
    read_breakages,
)
from torchenv.audit.rule import needle_test
from torchenv.catalogue import resources
from torchenv.errors import InputError


def rules_of(content: str, breakages: Breakages, kind: FileKind = FileKind.PYTHON) -> list[str]:
    result = audit_content("a.py", kind, content.encode(), [breakages])
    assert not isinstance(result, Unread), result.why
    return [item.rule for item in result]


IMPORT = "import torch.distributed as dist\n"


def test_a_comment_on_the_line_suppresses_the_rules_it_names(breakages: Breakages) -> None:
    call = 'dist.init_process_group("nccl")'
    assert rules_of(IMPORT + call, breakages) == ["nccl-rewritten", "one-device"]
    one = f"{call}  # torchenv: ignore[one-device]"
    assert rules_of(IMPORT + one, breakages) == ["nccl-rewritten"]
    both = f"{call}  # torchenv: ignore[one-device, nccl-rewritten]"
    assert rules_of(IMPORT + both, breakages) == []


def test_a_comment_alone_speaks_for_the_next_line(breakages: Breakages) -> None:
    code = '# torchenv: ignore[one-device]\ndist.init_process_group("nccl")\n'
    assert rules_of(IMPORT + code, breakages) == ["nccl-rewritten"]


def test_a_comment_anywhere_in_a_long_call_suppresses_it(breakages: Breakages) -> None:
    code = 'dist.init_process_group(\n    "nccl",  # torchenv: ignore[one-device]\n)\n'
    assert rules_of(IMPORT + code, breakages) == ["nccl-rewritten"]


def test_a_comment_without_names_suppresses_nothing(breakages: Breakages) -> None:
    code = 'dist.init_process_group("nccl")  # torchenv: ignore[]\n'
    assert rules_of(IMPORT + code, breakages) == ["nccl-rewritten", "one-device"]


def test_other_languages_suppress_in_their_own_comments(breakages: Breakages) -> None:
    code = "curandCreateGenerator(&g, t);  // torchenv: ignore[curand-build]\n"
    assert rules_of(code, breakages, FileKind.CODE) == []


def test_columns_count_letters_and_not_bytes(breakages: Breakages) -> None:
    code = 'import torch\nname = "größe"; d = torch.device("mps")\n'.encode()
    result = audit_content("a.py", FileKind.PYTHON, code, [breakages])
    assert not isinstance(result, Unread)
    assert [(item.line, item.column) for item in result] == [(2, 21)]


def test_a_finding_says_why_and_what_to_do(breakages: Breakages) -> None:
    content = b"torch==2.15.0+cu126\n"
    assert audit_content("requirements.txt", FileKind.REQUIREMENTS, content, [breakages]) == (
        Finding(
            path="requirements.txt",
            line=1,
            column=1,
            rule="removed-label",
            severity=Severity.ERROR,
            why="`torch==2.15.0+cu126` is built for cu126, for which torch 2.15.0 is not published"
            " (its last torch is 2.14.1)",
            remedy="take the label +cu132, or torch==2.14.1+cu126",
        ),
    )


@pytest.mark.parametrize(
    ("kind", "content", "why"),
    [
        (FileKind.PYTHON, "torch\nx = y('mps'\n", "not Python: line 2: '(' was never closed"),
        (FileKind.PYTHON, "torch\nx = 'mps'" + ".y" * 5000, "nested too deeply to be followed"),
        (FileKind.PYPROJECT, "torch+cu126 = [", "not valid TOML"),
        (FileKind.YAML, "TORCH_NCCL_: [", "not YAML"),
        (FileKind.NOTEBOOK, "torch 'mps' {", "not a Jupyter notebook of format 4"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_judged_is_told(
    breakages: Breakages, kind: FileKind, content: str, why: str
) -> None:
    result = audit_content("it", kind, content.encode(), [breakages])
    assert isinstance(result, Unread)
    assert result.why.startswith(why)


@pytest.mark.parametrize(
    ("kind", "good", "bad", "why"),
    [
        (FileKind.PYPROJECT, "[tool]\n", "[tool\n", "not valid TOML: "),
        (FileKind.LOCK, "version = 1\n", "version = \n", "not valid TOML: "),
        (FileKind.NOTEBOOK, '{"cells": []}', '{"cells"', "not a Jupyter notebook of format 4: "),
    ],
)
def test_a_project_file_that_no_rule_can_hit_is_known_to_be_what_its_name_says(
    breakages: Breakages, kind: FileKind, good: str, bad: str, why: str
) -> None:
    assert audit_content("it", kind, good.encode(), [breakages]) == ()
    result = audit_content("it", kind, bad.encode(), [breakages])
    assert isinstance(result, Unread)
    assert result.why.startswith(why)


def test_a_cell_that_is_not_python_does_not_hide_the_others(breakages: Breakages) -> None:
    cells = ["this is ( not Python", "import torch", "%matplotlib inline\nd = torch.device('mps')"]
    listed = ",\n".join(f'{{"cell_type": "code", "source": {quoted(cell)}}}' for cell in cells)
    notebook = f'{{"cells": [{listed}]}}'
    result = audit_content("a.ipynb", FileKind.NOTEBOOK, notebook.encode(), [breakages])
    assert not isinstance(result, Unread)
    assert [(item.rule, item.line) for item in result] == [("mps-floor", 3)]


def quoted(text: str) -> str:
    import json

    return json.dumps(text)


def test_every_fact_of_a_rule_gets_past_its_needles(breakages: Breakages) -> None:
    nccl, nested = breakages.nccl, breakages.nested
    assert nccl is not None
    assert nested is not None
    named = {
        "removed-name": [*breakages.removed_names, *breakages.removed_members],
        "removed-header": breakages.removed_headers,
        "checkpoint-trainer": [trainer.call for trainer in breakages.trainers],
        "companion": [f"{companion.name} {companion.refuses}" for companion in breakages.companions],
        "nccl-legacy": [nccl.legacy],
        "nccl-switch": [nccl.switch],
        "nccl-settings": [nccl.settings],
        "nested-load": [f"{maker} load" for maker in nested.makers],
        "removed-label": [f"torch==2.15.0+{left}" for left in breakages.left],
    }
    rules = {rule.name: rule for rule in RULES}
    for name, facts in named.items():
        for fact in facts:
            rule = rules[name]
            kind = next(iter(rule.kinds))
            assert rule.may_hit(kind, needle_test(fact.encode()), breakages), f"{name}: {fact}"


FRAGMENTS = [
    "import torch.distributed as dist", "from torch import *", "dist.init_process_group(", ")",
    "(", "[", "]", "{", "}", "pip install torch",
    " --index-url https://download.pytorch.org/whl/cu126", "torch==2.15.0+cu126", "'", "\"", ":",
    "\n", "\n  ", "- ", "#", "\\", "&", "*", "|", "=", ">=3.10", "python", "requires-python",
    "dependencies", "[project]", "[options]", "name", "value", "env", "FROM python:3.10", "ENV",
    "TORCH_NCCL_A", "\t", "\0", "é", ",", "{\"cells\": [{\"cell_type\": \"code\", \"source\": \"",
    "\"}]}", "x = lambda y: ", "for n in x:", "match x:", "case ", "#[[", "]]", "/*", "*/",
    "curandCreateGenerator(", "target_link_libraries(", "nccl-legacy", "macos-14", "mps",
]  # fmt: skip


@given(
    kind=st.sampled_from([kind for kind in FileKind if kind is not FileKind.NATIVE]),
    parts=st.lists(st.sampled_from(FRAGMENTS), max_size=30),
)
def test_any_file_is_judged_or_told_and_never_stops_the_audit(
    breakages: Breakages, kind: FileKind, parts: list[str]
) -> None:
    everything = [replace(rule, kinds=frozenset(FileKind), needles=((),)) for rule in RULES]
    result = audit_content("it", kind, "".join(parts).encode(), [breakages], everything)
    assert isinstance(result, Unread | tuple)


def test_every_rule_has_its_own_name_and_its_own_tests() -> None:
    from pathlib import Path

    names = [rule.name for rule in RULES]
    assert len(names) == len(set(names))
    tested = {path.stem for path in Path(__file__).parent.glob("rules/test_*.py")}
    assert {f"test_{name.replace('-', '_')}" for name in names} == tested


def test_the_facts_are_of_one_release_and_an_unknown_one_is_refused(breakages: Breakages) -> None:
    assert str(breakages.version) == "2.15.0"
    assert (str(breakages.before), breakages.default_backend, breakages.mps_macos) == ("2.14.1", "cu132", 15)
    assert (breakages.pythons[0], breakages.dropped_pythons[-1]) == ("3.11", "3.10")
    assert breakages.removed_gfx == {"9.0.0": "gfx900", "9.0.6": "gfx906"}
    assert breakages.removed_gfx_backend == "rocm7.2"
    assert (breakages.left["cu126"], breakages.left["cu128"]) == ("2.14.1", "2.11.0")
    assert (breakages.left["rocm7.2"], breakages.left["cu118"]) == ("2.14.1", "2.7.1")
    with pytest.raises(InputError) as error:
        read_breakages(resources.section("audit"), resources.catalogue(), "2.99")
    assert error.value.message == "breakages.toml: what torch 2.99 breaks is not described"
    assert error.value.hint == "audit for 2.15.0"


def test_a_report_gives_what_matters_as_much_as_asked() -> None:
    found = tuple(
        Finding(path="a", line=1, column=1, rule="r", severity=severity, why="", remedy="")
        for severity in Severity
    )
    report = AuditReport(release="2.15.0", files=1, findings=found)
    assert [str(item.severity) for item in report.at_least(Severity.WARNING)] == [
        "warning",
        "error",
    ]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("src/a.py", FileKind.PYTHON),
        ("setup.py", FileKind.SETUP_PY),
        ("requirements-dev.txt", FileKind.REQUIREMENTS),
        ("requirements/gpu/base.in", FileKind.REQUIREMENTS),
        ("notes.txt", FileKind.PROSE),
        ("pylock.train.toml", FileKind.LOCK),
        ("docker/Dockerfile.gpu", FileKind.DOCKERFILE),
        (".github/workflows/test.yml", FileKind.CI),
        (".gitlab-ci.yml", FileKind.CI),
        ("env/environment.yaml", FileKind.YAML),
        ("lib/libmine.so.1.2", FileKind.NATIVE),
        ("lib/_C.cpython-312-x86_64-linux-gnu.so", FileKind.NATIVE),
        ("a/CMakeLists.txt", FileKind.CMAKE),
        ("kernels/noise.cuh", FileKind.CODE),
        ("data.bin", None),
        ("other.toml", None),
    ],
)
def test_a_file_is_known_by_its_name(path: str, kind: FileKind | None) -> None:
    assert kind_of(path) is kind


KEYS = ("package", "project", "tool", "uv", "pip", "sources", "index", "poetry", "group", "pixi", "feature")
MORE_KEYS = (
    "hatch",
    "envs",
    "dependencies",
    "torch",
    "name",
    "version",
    "url",
    "extra",
    "source",
    "packages",
)
TABLES = st.recursive(
    st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS + MORE_KEYS), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(table=TABLES, path=st.sampled_from(["pyproject.toml", "uv.lock", "pixi.toml", "hatch.toml"]))
def test_a_document_of_odd_types_is_judged_or_told(breakages: Breakages, table: object, path: str) -> None:
    text = tomlkit.dumps(table) if isinstance(table, dict) else "torch = 3.1"
    kind = kind_of(path)
    assert kind is not None
    everything = [replace(rule, kinds=frozenset(FileKind), needles=((),)) for rule in RULES]
    assert isinstance(audit_content(path, kind, text.encode(), [breakages], everything), Unread | tuple)


def test_what_is_too_large_to_be_followed_is_told(breakages: Breakages) -> None:
    code = b"import torch.distributed as dist\ndist.init_process_group('nccl')\n" + b"x = 1\n" * 300_000
    assert audit_content("a.py", FileKind.PYTHON, code, [breakages]) == Unread("a.py", "larger than 1.5 MB")
