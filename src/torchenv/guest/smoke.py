"""Report from inside an environment whether everything that training leans on works there.

Run as a file by that environment's own interpreter (`python -I -B smoke.py REQUEST`), so it uses the standard
library and torch alone and may not import torchenv. REQUEST is JSON:
{"packages": ["torchvision", ...], "scratch": "/work"}: the distributions that must import, and where to
write if the temporary directory is full or runs no code.
Prints a line as each step begins and one as it ends, so that a crash tells which step it was in:
torchenv-smoke {"began": "convolution on cuda:0"}
torchenv-smoke {"step": "convolution on cuda:0", "result": "passed", "seconds": 0.2, "message": ""}
"""

import importlib
import json
import multiprocessing
import os
import shutil
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import Distribution, distribution
from inspect import getmodulename
from pathlib import Path
from typing import Any

# An isolated Python does not look beside the script that it runs.
sys.path.insert(0, str(Path(__file__).parent))
check: Any = importlib.import_module("check")
del sys.path[0]

MARK = "torchenv-smoke "

# Each rank loads torch anew, which on a slow disk takes longer than all that follows.
RANKS_MUST_MEET_IN = 300.0

SCRATCH_NEEDS = 256 << 20


class Skipped(Exception):
    """A step that cannot be judged here, with the reason."""


def main() -> int:
    request = json.loads(sys.argv[1])
    where = choose_scratch([tempfile.gettempdir(), request.get("scratch"), str(Path.home())])
    with tempfile.TemporaryDirectory(prefix="torchenv-smoke-", dir=where) as scratch:
        hold(scratch)
        prepare(scratch)
        if step("import torch", imports_torch):
            torch = importlib.import_module("torch")
            tell({"torch": {**check.describe(torch), "compiled_cuda": read_compiled_cuda(torch)}})
            tell({"devices": [name_device(torch, device) for device in check.devices(torch)]})
            for name, run in steps(torch, Path(scratch)):
                step(name, run)
            for name in request["packages"]:
                step(f"import {name}", partial(imports, name))
    return 0


def choose_scratch(places: list[Any]) -> str | None:
    """Return the first directory with room whose file system runs code; None where Python's own choice stays.

    Compiled functions are loaded from there, and the workers that torch starts meet there.
    """
    for place in places:
        if place is None or not os.path.isdir(place) or not os.access(place, os.W_OK):
            continue
        if not hasattr(os, "statvfs"):
            return str(place)
        found = os.statvfs(place)
        roomy = found.f_bavail * found.f_frsize >= SCRATCH_NEEDS
        if roomy and not found.f_flag & getattr(os, "ST_NOEXEC", 0):
            return str(place)
    return None


def hold(scratch: str) -> None:
    """Show torchenv that a process still needs this directory: without that it clears it later."""
    try:
        import fcntl

        fcntl.flock(os.open(os.path.join(scratch, ".mutex"), os.O_RDWR | os.O_CREAT, 0o600), fcntl.LOCK_EX)
    except (ImportError, OSError):
        pass


def prepare(scratch: str) -> None:
    # Whatever torch and its children make is beside the rest, not in a place that was found wanting.
    os.environ["TMPDIR"] = scratch
    tempfile.tempdir = scratch
    # More threads than the two of a small machine gain nothing for what is so small.
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    # What was compiled on another day proves nothing, and nothing is left in the user's caches.
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{scratch}/inductor"
    os.environ["TRITON_CACHE_DIR"] = f"{scratch}/triton"
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    # Ranks on one machine need no network, whatever its host name leads to.
    if sys.platform != "win32":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")


def steps(torch: Any, scratch: Path) -> list[tuple[str, Callable[[], str]]]:
    devices = ["cpu", *check.devices(torch)]
    computations = (("matmul", matmul), ("convolution", convolution), ("backward", backward))
    wanted: list[tuple[str, Callable[[], str]]] = [
        (f"{name} on {device}", partial(compute, torch, device))
        for device in devices
        for name, compute in computations
    ]
    compiled_for = "cpu" if devices[-1] == "mps" else devices[-1]
    wanted.append((f"torch.compile on {compiled_for}", partial(compiles, torch, compiled_for)))
    wanted.append(("distributed checkpoint", partial(saves_and_loads, torch, scratch)))
    wanted.append(("gloo, one rank", partial(one_rank, torch, "gloo", "cpu", scratch)))
    wanted.append(("gloo, two ranks", partial(two_ranks, torch, scratch)))
    backend = {"cuda": "nccl", "xpu": "xccl"}.get(devices[-1].partition(":")[0])
    if backend is not None:
        wanted.append((f"{backend}, one rank", partial(one_rank, torch, backend, devices[1], scratch)))
    return wanted


def step(name: str, run: Callable[[], str]) -> bool:
    """Run one step and tell how it ended; what it gives back is worth telling a person."""
    tell({"began": name})
    began = time.perf_counter()
    try:
        result, message = "passed", run()
    except Skipped as reason:
        result, message = "skipped", str(reason)
    except BaseException as error:
        result, message = "failed", check.describe_error(error)
    seconds = round(time.perf_counter() - began, 3)
    tell({"step": name, "result": result, "seconds": seconds, "message": message})
    return result == "passed"


def tell(fact: dict[str, Any]) -> None:
    print(f"\n{MARK}{json.dumps(fact)}", flush=True)


def read_compiled_cuda(torch: Any) -> str | None:
    """Ask the compiled part, which knows better than the version file beside it."""
    asked = getattr(torch._C, "_cuda_getCompiledVersion", None)
    if asked is None or torch.version.hip is not None:
        return None
    # 13020 is CUDA 13.2
    number = asked()
    return f"{number // 1000}.{number % 1000 // 10}"


def name_device(torch: Any, device: str) -> str:
    kind, _, index = device.partition(":")
    return str(getattr(torch, kind).get_device_name(int(index))) if index else device


def imports_torch() -> str:
    return f"torch {importlib.import_module('torch').__version__}"


def matmul(torch: Any, device: str) -> str:
    left = torch.arange(4096, dtype=torch.float32).reshape(64, 64) / 4096
    right = left.flip(0) - 0.5
    return agrees(device, lambda there: there(left) @ there(right))


def convolution(torch: Any, device: str) -> str:
    images = torch.arange(1536, dtype=torch.float32).reshape(2, 3, 16, 16).sin()
    kernels = torch.arange(108, dtype=torch.float32).reshape(4, 3, 3, 3).cos()
    return agrees(device, lambda there: torch.nn.functional.conv2d(there(images), there(kernels)))


def backward(torch: Any, device: str) -> str:
    inputs = torch.arange(512, dtype=torch.float32).reshape(32, 16).sin()
    start = torch.arange(128, dtype=torch.float32).reshape(16, 8).cos()

    def gradient(there: Callable[[Any], Any]) -> Any:
        weights = there(start).clone().requires_grad_()
        torch.tanh(there(inputs) @ weights).square().mean().backward()
        return weights.grad

    return agrees(device, gradient)


def agrees(device: str, compute: Callable[[Callable[[Any], Any]], Any]) -> str:
    """Compute on the device in single precision, and on the CPU in double."""
    here = compute(lambda tensor: tensor.to(device)).detach().cpu().double()
    exact = compute(lambda tensor: tensor.double()).detach()
    furthest = (here - exact).abs().max().item()
    # TF32 keeps ten bits of each factor.
    allowed = 1e-5 if device == "cpu" else 5e-3
    scale = max(1.0, exact.abs().max().item())
    if not furthest <= allowed * scale:
        raise ArithmeticError(f"the result differs from the CPU's by {furthest:.3g}")
    return ""


def compiles(torch: Any, device: str) -> str:
    why = explain_no_compiler()
    if why is not None:
        raise Skipped(why)
    inputs = torch.arange(64, dtype=torch.float32).reshape(8, 8).to(device)

    def small(tensor: Any) -> Any:
        return torch.tanh(tensor * 0.01).sum(dim=1) + 1

    together = torch.compile(small, fullgraph=True)(inputs)
    if not torch.allclose(together.cpu(), small(inputs).cpu(), rtol=1e-4, atol=1e-4):
        raise ArithmeticError("the compiled function gives another result")
    return ""


def explain_no_compiler() -> str | None:
    """Explain why this torch or this machine compiles nothing, which is no fault of the environment."""
    supported = importlib.import_module("torch._dynamo.eval_frame").check_if_dynamo_supported
    try:
        supported()
    except RuntimeError as error:
        return str(error)
    compilers = (os.environ.get("CXX"), *(("cl",) if sys.platform == "win32" else ("g++", "clang++", "gcc")))
    if not any(compiler and shutil.which(compiler) for compiler in compilers):
        return "there is no C++ compiler on this machine, which torch.compile needs"
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        return "this machine lacks the headers of its Python (Python.h), which torch.compile needs"
    return None


def saves_and_loads(torch: Any, scratch: Path) -> str:
    checkpoints = import_distributed(torch, "torch.distributed.checkpoint")
    weights = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    checkpoints.save({"weights": weights, "step": 7}, checkpoint_id=scratch / "checkpoint", no_dist=True)
    loaded = {"weights": torch.zeros(3, 4), "step": 0}
    checkpoints.load(loaded, checkpoint_id=scratch / "checkpoint", no_dist=True)
    if not (torch.equal(loaded["weights"], weights) and loaded["step"] == 7):
        raise ArithmeticError("what was loaded is not what was saved")
    return ""


def one_rank(torch: Any, backend: str, device: str, scratch: Path) -> str:
    group = import_distributed(torch, "torch.distributed")
    if not getattr(group, f"is_{backend}_available", lambda: True)():
        raise Skipped(f"this torch is built without {backend}")
    add_up(torch, backend, device, scratch / f"{backend}-1", rank=0, size=1)
    return ""


def two_ranks(torch: Any, scratch: Path) -> str:
    import_distributed(torch, "torch.distributed")
    context = multiprocessing.get_context("spawn")
    errors = context.SimpleQueue()
    meeting = str(scratch / "gloo-2")
    ranks = [context.Process(target=rank_of_two, args=(number, meeting, errors)) for number in range(2)]
    for rank in ranks:
        rank.start()
    deadline = time.monotonic() + RANKS_MUST_MEET_IN
    for rank in ranks:
        rank.join(max(0.0, deadline - time.monotonic()))
    late = [rank for rank in ranks if rank.is_alive()]
    for rank in late:
        rank.kill()
        rank.join()
    if not errors.empty():
        raise RuntimeError(errors.get())
    if late:
        raise TimeoutError(f"the ranks did not meet within {RANKS_MUST_MEET_IN:.0f} s")
    codes = [rank.exitcode for rank in ranks if rank.exitcode != 0]
    if codes:
        raise RuntimeError(f"a rank ended with code {codes[0]}")
    return ""


def rank_of_two(rank: int, meeting: str, errors: Any) -> None:
    try:
        add_up(importlib.import_module("torch"), "gloo", "cpu", Path(meeting), rank=rank, size=2)
    except BaseException as error:
        errors.put(check.describe_error(error))


def add_up(torch: Any, backend: str, device: str, meeting: Path, *, rank: int, size: int) -> None:
    """Sum one number of each rank over a process group."""
    group = importlib.import_module("torch.distributed")
    bound = {} if device == "cpu" else {"device_id": torch.device(device)}
    group.init_process_group(
        backend, init_method=meeting.absolute().as_uri(), rank=rank, world_size=size, **bound
    )
    try:
        number = torch.full((4,), float(rank + 1), device=device)
        group.all_reduce(number)
        expected = float(size * (size + 1) // 2)
        if number.tolist() != [expected] * 4:
            raise ArithmeticError(f"the ranks' sum is {number.tolist()[0]}, and {expected} is right")
    finally:
        group.destroy_process_group()


def import_distributed(torch: Any, name: str) -> Any:
    if not torch.distributed.is_available():
        raise Skipped("this torch is built without torch.distributed")
    return importlib.import_module(name)


def imports(package: str) -> str:
    version = distribution(package).version
    modules = modules_of(package)
    if not modules:
        raise Skipped(f"{package} {version} brings no module to import")
    for module in modules:
        importlib.import_module(module)
    return version


def modules_of(package: str) -> list[str]:
    """Return the module that has the distribution's name, else every one that it brings at the top."""
    brought = sorted(name for name in at_the_top(distribution(package)) if not name.startswith("_"))
    # Not a few wheels bring their `tests` or `docs` along, which were never meant to be imported.
    canonical = check.canonical(package)
    own = [module for module in brought if check.canonical(module) == canonical]
    return own or brought


def at_the_top(found: Distribution) -> set[str]:
    # `packages_distributions` passes over compiled modules before Python 3.11.4.
    names = {*(found.read_text("top_level.txt") or "").split()}
    for file in found.files or ():
        names.add(file.parts[0] if len(file.parts) > 1 else getmodulename(file.name) or "")
    return {name for name in names if name.isidentifier()}


if __name__ == "__main__":
    sys.exit(main())
