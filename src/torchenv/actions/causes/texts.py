"""What is behind the errors and warnings that torch and its libraries print, and behind a signal."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from typing import NamedTuple

from torchenv.environment.findings import EnvironmentFinding
from torchenv.host.probe.torch_messages import complaint
from torchenv.system.process import Completed, End


class KnownText(NamedTuple):
    """A text that is known by public reports: its first group fills the `{}` of the message."""

    code: str
    pattern: str
    message: str
    cure: str | None


# The first that matches is the cause; what follows in the same output is its consequence.
KNOWN = (
    # OMP: Error #15: Initializing libiomp5.so, but found libomp.so already initialized.
    KnownText(
        "openmp-twice",
        r"OMP: Error #15: Initializing (\S+?),",
        "{} is loaded beside another OpenMP library",
        "uv pip install --python {path} --reinstall numpy scipy scikit-learn",
    ),
    # A module that was compiled using NumPy 1.x cannot be run in NumPy 2.3.0 as it may crash.
    # ValueError: numpy.dtype size changed, may indicate binary incompatibility.
    KnownText(
        "numpy-abi",
        r"compiled using (NumPy 1\.x) cannot be run|numpy\.dtype size changed|_ARRAY_API not found",
        "a package was compiled for another major version of numpy",
        "uv pip install --python {path} 'numpy<2'",
    ),
    # ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.28' not found (required by …)
    KnownText(
        "glibc-too-old",
        r"version [`'](GLIBC_[\d.]+)' not found",
        "this system's C library lacks {}, which the build needs",
        "torchenv plan",
    ),
    # ImportError: /usr/lib/libstdc++.so.6: version `GLIBCXX_3.4.30' not found (required by …)
    KnownText(
        "libstdcxx-too-old",
        r"version [`']((?:GLIBCXX|CXXABI)_[\d.]+)' not found",
        "the libstdc++ that is loaded lacks {}, which the build needs",
        "unset LD_LIBRARY_PATH",
    ),
    # ImportError: …/libtorch_cpu.so: failed to map segment from shared object
    KnownText(
        "noexec",
        r"(\S+\.so[\w.]*): failed to map segment from shared object",
        "{} lies on a file system that runs no code (noexec)",
        "findmnt --target {path} -o TARGET,OPTIONS",
    ),
    KnownText(
        "curand-missing",
        r"(libcurand\.so[\w.]*): cannot open shared|undefined symbol: (?:curand\w+)",
        "torch no longer brings cuRAND from 2.15 on, and an extension needs it",
        "uv pip install --python {path} nvidia-curand",
    ),
    # ImportError: libcudnn.so.9: undefined symbol: …, version libcudnn_graph.so.9
    KnownText(
        "library-path",
        r"(libcudnn\w*\.so[\w.]*)(?:: undefined symbol|.* version)|CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH"
        r"|undefined symbol: nccl\w+",
        "another cuDNN or NCCL is loaded than the one that torch brings",
        "unset LD_LIBRARY_PATH",
    ),
    # RuntimeError: operator torchvision::nms does not exist
    KnownText(
        "other-build",
        r"operator (\w+)::\w+ does not exist",
        "{} was built for another torch than the one here",
        "torchenv create --like {path}",
    ),
    # ImportError: …: undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationE…
    KnownText(
        "other-torch",
        r"(\S+\.so): undefined symbol: _ZN?K?\d?\w*(?:3c10|2at|5torch)\w*",
        "{} was compiled against another torch",
        "torchenv create --like {path}",
    ),
    # triton.runtime.errors…: Cannot find a working triton installation.
    KnownText(
        "triton-missing",
        r"No module named '(triton)'|Cannot find a working triton",
        "torch.compile finds no working triton",
        "torchenv create --like {path}",
    ),
    # unable to write to file </torch_123_456_0>: No space left on device (28)
    KnownText(
        "shm-small",
        r"unable to (?:write|mmap)\D*(/torch_\w+)|insufficient shared memory \(shm\)",
        "shared memory is too small for the workers of a DataLoader",
        "docker run --shm-size=8g …",
    ),
    # Error 803: system has unsupported display driver / cuda driver combination
    KnownText(
        "driver-library-mismatch",
        r"Error 80[34]: (\w[\w /]+)|Driver/library version mismatch",
        "the NVIDIA driver that is loaded and the library beside it are of different versions",
        "sudo reboot",
    ),
    # Error 802: system not yet initialized
    KnownText(
        "fabric-manager",
        r"Error (802): system not yet initialized",
        "NVIDIA's fabric manager is not running, and the GPUs of this machine need it",
        "sudo systemctl start nvidia-fabricmanager",
    ),
    KnownText(
        "driver-missing",
        r"(libcuda\.so\.1): cannot open shared",
        "{} of the NVIDIA driver is missing",
        "torchenv probe",
    ),
    # CheckpointException … ValueError: too many values to unpack (expected 5)
    # AssertionError: metadata is None; global metadata read failed: too many values to unpack (expected 5)
    KnownText(
        "checkpoint-too-new",
        r"(?s)(?:global metadata read failed: |CheckpointException.*?ValueError: )too many values to unpack",
        "a distributed checkpoint was saved by torch 2.15 or newer, and this torch cannot read it",
        "torchenv checkpoints scan",
    ),
    KnownText(
        "no-space",
        r"\[Errno 28\] (No space left on device)",
        "a file system is full",
        "df -h {path} ${{TMPDIR:-/tmp}}",
    ),
)

# What public reports say of a signal in `import torch`.
_SIGNALS = {
    "SIGILL": ("the processor lacks instructions that the build uses", "torchenv plan --explain"),
    "SIGSEGV": (
        "two incompatible libraries are loaded, or a file of the environment is damaged",
        "torchenv verify",
    ),
    "SIGBUS": ("a file was cut short, or a file system is full", "torchenv verify"),
    "SIGABRT": ("a library stopped the process; its last message is above", "torchenv verify"),
    "SIGKILL": ("the system or a container ran out of memory", "dmesg | grep -i 'out of memory'"),
}


def find_known_texts(text: str, path: str) -> Iterator[EnvironmentFinding]:
    """Yield the cause behind what was printed; nothing where the text is not known."""
    for known in KNOWN:
        if match := re.search(known.pattern, text):
            named = match[1] if match.lastindex else ""
            cure = known.cure.format(path=path) if known.cure else None
            yield EnvironmentFinding(known.code, path, known.message.format(named), cure)
            return
    if (said := complaint(text)) is not None:
        match said.code:
            case "driver-too-old":
                message = f"the NVIDIA driver knows CUDA {said.cuda} at most, which is too old for this build"
            case "no-kernel-for-sm":
                card = f"compute capability {said.capability}" if said.capability else "the GPU here"
                message = f"torch has no kernels for {card}"
            case _:
                message = "torch finds no NVIDIA driver"
        code = "no-code" if said.code == "no-kernel-for-sm" else said.code
        yield EnvironmentFinding(code, path, message, "torchenv plan")


def explain_end(completed: Completed, timeout: float, path: str) -> EnvironmentFinding | None:
    """Return why a Python did not come back from `import torch`; None where it ended by itself."""
    if completed.end is End.OUT_OF_TIME:
        message = f"importing torch did not finish within {timeout:g} s: the disk is slow, or a device hangs"
        return EnvironmentFinding("import-hangs", path, message, "python -X importtime -c 'import torch'")
    if completed.end in (End.NOT_FOUND, End.NOT_STARTED):
        message = f"its interpreter does not start: {completed.reason()}"
        return EnvironmentFinding("interpreter-gone", path, message, "torchenv create")
    if completed.code >= 0:
        return None
    ended = explain_signal(completed.code)
    message = f"importing torch was ended by {ended.name}: {ended.why}"
    return EnvironmentFinding("import-crashes", path, message, ended.cure)


class EndBySignal(NamedTuple):
    """A signal by its name, what public reports say is behind it in a torch, and what to do then."""

    name: str
    why: str
    cure: str | None


def explain_signal(code: int) -> EndBySignal:
    """Explain the signal that ended a program, by its exit code below zero."""
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    why, cure = _SIGNALS.get(name, ("another process ended it", None))
    return EndBySignal(name, why, cure)
