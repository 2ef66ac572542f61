"""How names of Python code are followed to what was imported."""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from torchenv.audit.modules import Module

if TYPE_CHECKING:
    from torchenv.audit import Breakages


def uses(code: str, path: str, breakages: Breakages) -> list[int]:
    module = Module(dedent(code), breakages)
    return [use.place.line for use in module.uses(path)]


@pytest.mark.parametrize(
    "code",
    [
        "import torch\ntorch.load(1)",
        "import torch as t\nt.load(1)",
        "import torch.nn\ntorch.load(1)",
        "from torch import load\nload(1)",
        "from torch import *\nload(1)",
        "import importlib\nimportlib.import_module('torch').load(1)",
        "def late():\n    return load(1)\nfrom torch import load",
        "try:\n    import torch\nexcept ImportError:\n    torch = None\ntorch.load(1)",
        "import torch\nclass A:\n    t = torch\n    x = t.load(1)",
        "import torch\nx = [torch.load(each) for each in y]",
        "import torch\nx = lambda: torch.load(1)",
        "import torch\nif (t := torch):\n    t.load(1)",
    ],
)
def test_a_name_is_followed_however_it_came(breakages: Breakages, code: str) -> None:
    assert Module(code, breakages).calls("torch.load")


@pytest.mark.parametrize(
    "code",
    [
        "load(1)",
        "from .torch import load\nload(1)",
        "import torch\ndef f(torch):\n    torch.load(1)",
        "from torch import load\n[load(1) for load in x]",
        "from torch import load\ndef f():\n    load(1)\n    load = 2",
        "from torch import load\nclass load: ...\ndef f():\n    def load(): ...\n    load(1)",
        "class A:\n    from torch import load\n    def f(self):\n        load(1)",
        "import torch\nself.torch.load(1)",
        "from torch import load\ndef f(x):\n    match x:\n        case load: load(1)",
    ],
)
def test_a_name_that_means_something_else_is_not(breakages: Breakages, code: str) -> None:
    assert not Module(code, breakages).calls("torch.load")


def test_a_global_statement_leaves_the_import_in_place(breakages: Breakages) -> None:
    code = """
        import torch
        def f():
            global torch
            torch.load(1)
    """
    assert uses(code, "torch.load", breakages) == [5]


def test_names_that_are_made_from_each_other_come_to_an_end(breakages: Breakages) -> None:
    code = "import torch\na = torch\na = a\nb = a\na = b.c\na.load(1)\n"
    assert uses(code, "torch.load", breakages) == [6]


@pytest.mark.parametrize(
    ("test", "lines"),
    [
        ("torch.__version__ >= '2.3'", [4]),
        ("version.parse(torch.__version__) < version.parse('2.3')", [6]),
        ("not Version('2.3') <= Version(torch.__version__)", [6]),
        ("_TORCH_GREATER_EQUAL_2_3", [4]),
        ("_TORCH_GREATER_EQUAL_2_99", [6]),
        ("is_torch_version('<', '2.3')", [6]),
        ("is_torch_greater_or_equal('2.3', accept_dev=True)", [4]),
        ("x and is_torch_version('<', '2.3')", [6]),
        ("x or is_torch_version('>=', '2.3')", [4]),
        ("is_torch_version('>=', FLOOR)", [4, 6]),
        ("torch_version() >= (1, 6, 0)", [4]),
        ("TORCH_VERSION < Version('2.3')", [6]),
        ("python_version >= '2.3'", [4, 6]),
        ("x", [4, 6]),
    ],
)
def test_a_branch_that_the_release_does_not_take_is_not_seen(
    breakages: Breakages, test: str, lines: list[int]
) -> None:
    code = f"import torch\nimport packaging\nif {test}:\n    torch.load(1)\nelse:\n    torch.load(2)"
    assert uses(code, "torch.load", breakages) == lines
