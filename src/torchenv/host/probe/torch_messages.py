"""What torch says when it cannot use a device, by what is behind it rather than by its own advice."""

from __future__ import annotations

import re

from torchenv.host.model import Capability
from torchenv.system.values import frozen


@frozen(kw_only=True)
class TorchComplaint:
    """Why torch cannot compute on a GPU; `cuda` is the newest CUDA that the driver knows."""

    code: str
    cuda: str | None = None
    capability: Capability | None = None


def complaint(text: str) -> TorchComplaint | None:
    """Recognize a warning or an error of torch; its advice on what to install may be wrong."""
    # The NVIDIA driver on your system is too old (found version 12020).
    if old := re.search(r"driver on your system is too old \(found version (\d{1,6})\)", text):
        version = int(old[1])
        return TorchComplaint(code="driver-too-old", cuda=f"{version // 1000}.{version % 1000 // 10}")
    # RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU …
    if "Found no NVIDIA driver on your system" in text:
        return TorchComplaint(code="driver-missing")
    # Found GPU0 NVIDIA GeForce GTX 1080 Ti which is of compute capability (CC) 6.1.
    # Your installed torch==2.15.0+cu132 does not include kernels for this GPU. …
    found = re.search(r"which is of compute capability \(CC\) ([\d.]+?)\.?\s", text)
    if found and "does not include kernels" in text:
        return TorchComplaint(code="no-kernel-for-sm", capability=Capability.parse(found[1]))
    # NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch …
    if older := re.search(r"with CUDA capability sm_(\d{2,3}) is not compatible", text):
        return TorchComplaint(code="no-kernel-for-sm", capability=Capability.of_code(int(older[1])))
    # CUDA error: no kernel image is available for execution on the device
    if "no kernel image is available" in text:
        return TorchComplaint(code="no-kernel-for-sm")
    return None
