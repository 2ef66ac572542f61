"""What is made of uv's answers, where a loopback index cannot bring them about."""

from __future__ import annotations

from pathlib import Path

from torchenv.installers import LockRequest
from torchenv.installers.uv import Uv
from torchenv.system.process import Command, Completed

TORCH = "https://mirror.example/whl/rocm7.14"

REQUEST = LockRequest(
    requirements=("torch==2.15.0+rocm7.14",),
    torch_index=TORCH,
    family=frozenset({"triton-rocm"}),
    python="3.12",
    platform="linux-x86_64",
)


def pylock(*names: str) -> str:
    packages = "".join(
        f'[[packages]]\nname = "{name}"\nversion = "1"\n'
        f'wheels = [{{ url = "https://m.example/{name.replace("-", "_")}-1-py3-none-any.whl",'
        f' hashes = {{ sha256 = "aa" }} }}]\n'
        for name in names
    )
    return f'lock-version = "1.0"\ncreated-by = "uv"\n{packages}'


class Answering:
    """A runner that says what uv would, and keeps the project that each lock was made from."""

    def __init__(self) -> None:
        self.projects: list[str] = []

    def __call__(self, command: Command, *, timeout: float | None = None) -> Completed:
        return Completed(command, 0, self._answer(command), "")

    def _answer(self, command: Command) -> str:
        if command.argv[1:3] == ("python", "find"):
            return "/store/cpython-3.14t/bin/python3.14t\n"
        if "--emit-index-url" in command.argv:
            return "--index-url https://default.example/simple\n\n"
        if "--format" in command.argv and command.cwd is not None:
            self.projects.append((command.cwd / "pyproject.toml").read_text())
            return pylock("torch", "triton-rocm", "numpy")
        return ""


def test_the_default_package_index_is_learned_from_uv_and_written_in() -> None:
    run = Answering()
    lock = Uv(run, program=Path("uv")).lock(REQUEST)
    assert {package.name: package.index for package in lock.packages} == {
        "numpy": "https://default.example/simple",
        "torch": TORCH,
        "triton-rocm": TORCH,
    }


def test_a_name_of_the_family_from_the_wrong_index_is_bound_and_the_lock_made_again() -> None:
    run = Answering()
    lock = Uv(run, program=Path("uv")).lock(REQUEST)
    assert lock.packages[2].index == TORCH
    first, second = run.projects
    assert "triton-rocm" not in first
    assert 'triton-rocm = { index = "torch" }' in second


def test_a_fetched_interpreter_is_found_where_uv_put_it() -> None:
    uv = Uv(Answering(), program=Path("uv"))
    assert uv.fetch_python("3.14t") == Path("/store/cpython-3.14t/bin/python3.14t")
