"""Small honest wheels: right tags, local versions, dependencies, metadata and RECORD."""

from __future__ import annotations

import base64
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property


@dataclass(frozen=True, kw_only=True)
class Wheel:
    """One wheel, made when it is first asked for; the same description gives the same bytes.

    `uploaded` is the day an index that knows dates would give, `metadata_version` what METADATA
    says where it differs from the file's name.
    """

    name: str
    version: str
    tag: str = "py3-none-any"
    requires: tuple[str, ...] = ()
    requires_python: str = ""
    extras: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    metadata_version: str | None = None
    uploaded: str = "2026-01-01"
    yanked: bool = False

    @property
    def project(self) -> str:
        return self.name.replace("_", "-").lower()

    @property
    def _stem(self) -> str:
        return f"{self.name.replace('-', '_')}-{self.version}"

    @property
    def file_name(self) -> str:
        return f"{self._stem}-{self.tag}.whl"

    @cached_property
    def metadata(self) -> bytes:
        lines = ["Metadata-Version: 2.4", f"Name: {self.name}"]
        lines += [f"Version: {self.metadata_version or self.version}"]
        lines += [f"Requires-Python: {self.requires_python}"] if self.requires_python else []
        lines += [f"Provides-Extra: {extra}" for extra in self.extras]
        lines += [f"Requires-Dist: {require}" for require in self.requires]
        return ("\n".join(lines) + "\n").encode()

    @cached_property
    def content(self) -> bytes:
        pure = "true" if self.tag.endswith("none-any") else "false"
        python, abi, platforms = self.tag.split("-")
        tags = "".join(f"Tag: {python}-{abi}-{part}\n" for part in platforms.split("."))
        head = f"Wheel-Version: 1.0\nGenerator: by hand\nRoot-Is-Purelib: {pure}\n"
        package = self.name.replace("-", "_")
        inside = {
            **(self.files or {f"{package}/__init__.py": f"__version__ = {self.version!r}\n"}),
            f"{self._stem}.dist-info/METADATA": self.metadata.decode(),
            f"{self._stem}.dist-info/WHEEL": head + tags,
        }
        record = "".join(f"{path},{_record_hash(text)}\n" for path, text in inside.items())
        record_path = f"{self._stem}.dist-info/RECORD"
        inside[record_path] = f"{record}{record_path},,\n"
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for path, text in inside.items():
                member = zipfile.ZipInfo(path, (2026, 1, 1, 0, 0, 0))
                member.external_attr = 0o100644 << 16
                archive.writestr(member, text)
        return file.getvalue()

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


class Sdist(Wheel):
    """The sources of a pure package; building them leaves a note at `ran` of whose code has run."""

    @property
    def file_name(self) -> str:
        return f"{self._stem}.tar.gz"

    @cached_property
    def content(self) -> bytes:
        metadata = f"Metadata-Version: 2.1\nName: {self.name}\nVersion: {self.version}\n"
        wheel = Wheel(name=self.name, version=self.version)
        backend = _BACKEND.format(ran=self.files.get("ran", ""), name=wheel.file_name, content=wheel.content)
        inside = {
            "PKG-INFO": metadata,
            "backend.py": backend,
            "pyproject.toml": _BUILD_SYSTEM,
        }
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode="w:gz") as archive:
            for path, text in inside.items():
                member = tarfile.TarInfo(f"{self._stem}/{path}")
                member.size = len(text.encode())
                archive.addfile(member, io.BytesIO(text.encode()))
        return file.getvalue()


_BUILD_SYSTEM = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
_BACKEND = """\
import pathlib
pathlib.Path({ran!r}).write_text("ran")
def build_wheel(directory, *_):
    (pathlib.Path(directory) / {name!r}).write_bytes({content!r})
    return {name!r}
"""


def _record_hash(text: str) -> str:
    data = text.encode()
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"sha256={digest},{len(data)}"


PLATFORMS = {
    "linux-x86_64": "manylinux_2_28_x86_64",
    "linux-aarch64": "manylinux_2_28_aarch64",
    "windows-x86_64": "win_amd64",
    "darwin-arm64": "macosx_14_0_arm64",
}
PYTHONS = (
    "cp310-cp310",
    "cp311-cp311",
    "cp312-cp312",
    "cp313-cp313",
    "cp314-cp314",
    "cp314-cp314t",
)

# What torch would find in itself: the CUDA code it was built for, as `_cuda_getArchFlags` gives it.
ARCH_FLAGS = {
    "cu126": "sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90",
    "cu130": "sm_75 sm_80 sm_86 sm_90 sm_100 sm_120",
    "cu132": "sm_75 sm_80 sm_86 sm_90 sm_100 sm_120",
    "cu134": "sm_75 sm_80 sm_86 sm_90 sm_100 sm_120",
    "rocm7.2": "gfx900 gfx906 gfx90a gfx942 gfx1100",
    "rocm7.14": "gfx90a gfx942 gfx1100 gfx1201",
    "rocm10.0": "gfx90a gfx942 gfx1100 gfx1201",
}

ORDINARY = ("filelock", "typing-extensions>=4.10")


def torch_wheel(
    version: str,
    backend: str,
    *,
    python: str = "cp312-cp312",
    platform: str = "linux-x86_64",
    label: str | None = None,
    arch_flags: str | None = None,
    requires: tuple[str, ...] = ORDINARY,
    on_package_index: bool = False,
) -> Wheel:
    """A torch that imports without a GPU and answers the questions an inside check asks.

    It computes on the devices that the variable `MADE_UP_DEVICES` describes, if its build is for their kind.

    `label` and `arch_flags` make it lie about its build. On the package index, the file and its
    METADATA carry no label although `torch.__version__` does.
    """
    said = label if label is not None else backend
    inside = f"{version}+{said}" if said else version
    cuda = f"{said[2:-1]}.{said[-1]}" if said.startswith("cu") else None
    hip = said.removeprefix("rocm") if said.startswith("rocm") else None
    xpu = "20260100" if said == "xpu" else None
    flags = ARCH_FLAGS.get(backend, "") if arch_flags is None else arch_flags
    return Wheel(
        name="torch",
        version=version if on_package_index else f"{version}+{backend}",
        tag=f"{python}-{PLATFORMS[platform]}",
        requires=requires,
        requires_python=">=3.10" if version < "2.15" else ">=3.11",
        files={
            "torch/__init__.py": _TORCH_INIT,
            "torch/version.py": (
                f"__version__ = {inside!r}\ncuda = {cuda!r}\nhip = {hip!r}\nxpu = {xpu!r}\n"
                f"debug = False\ngit_version = '0123456789abcdef0123456789abcdef01234567'\n"
            ),
            "torch/_C.py": f"def _cuda_getArchFlags():\n    return {flags!r} or None\n",
            "torch/cuda/__init__.py": _TORCH_CUDA,
            "torch/backends/__init__.py": "from torch.backends import mps\n",
            "torch/backends/mps.py": (
                "def is_built():\n    return False\n\n\ndef is_available():\n    return False\n"
            ),
            "torch/_devices.py": _TORCH_DEVICES,
            "torch/xpu.py": _TORCH_XPU,
        },
    )


# The hardware of a made-up machine as JSON: [{"name": "NVIDIA GeForce RTX 4090", "capability": [8, 9]}]
DEVICES = "MADE_UP_DEVICES"

_TORCH_INIT = """\
from torch import _C, _devices, backends, cuda, version, xpu
from torch.version import __version__

float32 = "float32"


class Tensor:
    def __init__(self, rows, device="cpu"):
        self.rows = rows
        self.device = device

    def __matmul__(self, other):
        columns = list(zip(*other.rows))
        return Tensor([[sum(a * b for a, b in zip(r, c)) for c in columns] for r in self.rows])

    def __truediv__(self, number):
        return Tensor([[each / number for each in row] for row in self.rows])

    def reshape(self, rows, columns):
        flat = [each for row in self.rows for each in row]
        return Tensor([flat[at * columns : (at + 1) * columns] for at in range(rows)])

    def flip(self, axis):
        return Tensor(self.rows[::-1])

    def to(self, device):
        _devices.start(device)
        return Tensor(self.rows, device)

    def cpu(self):
        return Tensor(self.rows)

    def sum(self):
        return Tensor([[sum(map(sum, self.rows))]])

    def item(self):
        return self.rows[0][0]

    def tolist(self):
        return self.rows


def arange(count, dtype=None):
    return Tensor([[float(each) for each in range(count)]])


def ones(rows, columns, device="cpu"):
    _devices.start(str(device))
    return Tensor([[1.0] * columns for _ in range(rows)])


def allclose(one, other, rtol=0.0, atol=0.0):
    return one.rows == other.rows
"""

_TORCH_DEVICES = f"""\
import json
import os

from torch import version


class Properties:
    def __init__(self, name, capability=(0, 0), gfx="", broken=False):
        self.name = name
        self.major, self.minor = capability
        self.gcnArchName = f"{{gfx}}:sramecc+:xnack-"
        self.broken = broken


def seen(kind):
    built = "xpu" if version.xpu else "cuda" if version.cuda or version.hip else None
    if kind != built:
        return []
    devices = [Properties(**each) for each in json.loads(os.environ.get("{DEVICES}", "[]"))]
    mask = os.environ.get("HIP_VISIBLE_DEVICES" if version.hip else "CUDA_VISIBLE_DEVICES")
    return devices if mask is None else [devices[int(each)] for each in mask.split(",")]


def start(device):
    kind, _, index = device.partition(":")
    if kind == "cpu":
        return
    if int(index or 0) >= len(seen(kind)):
        raise RuntimeError(f"this torch has no device {{device}}")
    if seen(kind)[int(index or 0)].broken:
        raise RuntimeError("CUDA error: no kernel image is available for execution on the device")
"""

_TORCH_CUDA = """\
from torch import _C, _devices


def is_available():
    return device_count() > 0


def device_count():
    return len(_devices.seen("cuda"))


def get_device_properties(index):
    return _devices.seen("cuda")[index]


def get_arch_list():
    # As torch does it: without a device the list is empty, whatever the build holds.
    return (_C._cuda_getArchFlags() or "").split() if is_available() else []
"""

_TORCH_XPU = """\
from torch import _devices


def is_available():
    return device_count() > 0


def device_count():
    return len(_devices.seen("xpu"))


def get_device_properties(index):
    return _devices.seen("xpu")[index]
"""
