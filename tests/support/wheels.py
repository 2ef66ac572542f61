"""Small honest wheels: right tags, local versions, dependencies, metadata and RECORD."""

from __future__ import annotations

import base64
import hashlib
import io
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
        lines += [f"Requires-Dist: {each}" for each in self.requires]
        return ("\n".join(lines) + "\n").encode()

    @cached_property
    def content(self) -> bytes:
        pure = "true" if self.tag.endswith("none-any") else "false"
        python, abi, platforms = self.tag.split("-")
        tags = "".join(f"Tag: {python}-{abi}-{each}\n" for each in platforms.split("."))
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

    `label` and `arch_flags` make it lie about its build. On the package index, the file and its
    METADATA carry no label although `torch.__version__` does.
    """
    said = label if label is not None else backend
    inside = f"{version}+{said}" if said else version
    cuda = f"{said[2:-1]}.{said[-1]}" if said.startswith("cu") else None
    hip = said.removeprefix("rocm") if said.startswith("rocm") else None
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
                f"__version__ = {inside!r}\ncuda = {cuda!r}\nhip = {hip!r}\nxpu = None\n"
                f"debug = False\ngit_version = '0123456789abcdef0123456789abcdef01234567'\n"
            ),
            "torch/_C.py": f"def _cuda_getArchFlags():\n    return {flags!r} or None\n",
            "torch/cuda/__init__.py": _TORCH_CUDA,
            "torch/backends/__init__.py": "from torch.backends import mps\n",
            "torch/backends/mps.py": (
                "def is_built():\n    return False\n\n\ndef is_available():\n    return False\n"
            ),
            "torch/xpu.py": (
                "def is_available():\n    return False\n\n\ndef device_count():\n    return 0\n"
            ),
        },
    )


_TORCH_INIT = """\
from torch import _C, backends, cuda, version, xpu
from torch.version import __version__


class Tensor:
    def __init__(self, rows):
        self.rows = rows

    def __matmul__(self, other):
        columns = list(zip(*other.rows))
        return Tensor([[sum(a * b for a, b in zip(r, c)) for c in columns] for r in self.rows])

    def sum(self):
        return Tensor([[sum(map(sum, self.rows))]])

    def item(self):
        return self.rows[0][0]

    def tolist(self):
        return self.rows


def ones(rows, columns, device="cpu"):
    if str(device) != "cpu":
        raise RuntimeError("this torch has no device but the CPU")
    return Tensor([[1.0] * columns for _ in range(rows)])
"""

_TORCH_CUDA = """\
from torch import _C


def is_available():
    return False


def device_count():
    return 0


def get_arch_list():
    # As torch does it: without a device the list is empty, whatever the build holds.
    return (_C._cuda_getArchFlags() or "").split() if is_available() else []
"""
