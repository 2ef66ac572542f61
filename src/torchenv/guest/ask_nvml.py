"""Asks NVML what it knows, then libcuda if NVML gave no device; prints one JSON object.

The first argument is the directory that holds `pynvml`. A library that is not there is null; one
that fails has `error` and `code`.
"""

import ctypes
import json
import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

WINDOWS = sys.platform == "win32"

# WSL keeps the driver's libraries where the loader may not look.
WSL = "/usr/lib/wsl/lib/"


def load_library(name: str) -> ctypes.CDLL | None:
    """Load a library, so that whoever asks for it by this name later gets the same one."""
    for place in (WSL + name, name):
        with suppress(OSError):
            return ctypes.CDLL(place, mode=ctypes.RTLD_GLOBAL)
    return None


def nvml() -> dict[str, Any] | None:
    if load_library("nvml.dll" if WINDOWS else "libnvidia-ml.so.1") is None:
        return None
    # If nothing comes after this, the driver is there and does not answer.
    sys.stderr.write("libnvidia-ml is loaded\n")
    sys.stderr.flush()
    sys.path.append(sys.argv[1])
    try:
        import pynvml
    except ImportError as error:
        return {"error": str(error), "code": None, "library": None}
    try:
        pynvml.nvmlInit()
        devices = [nvml_device(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())]
        if devices and all("error" in device for device in devices):
            return {"error": devices[0]["error"], "code": devices[0]["code"], "library": library_version()}
        return {"driver": pynvml.nvmlSystemGetDriverVersion(), "devices": devices}
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
            return None
        return {"error": str(error), "code": error.value, "library": library_version()}


def nvml_device(pynvml: Any, index: int) -> dict[str, Any]:
    try:
        device = pynvml.nvmlDeviceGetHandleByIndex(index)
    except pynvml.NVMLError as error:
        # One card that fell off the bus takes nothing from the others.
        return {"index": index, "error": str(error), "code": error.value}
    said: dict[str, Any] = {"index": index, "name": pynvml.nvmlDeviceGetName(device)}
    # Each of these is unknown to some card, driver or virtual machine.
    with suppress(pynvml.NVMLError):
        said["uuid"] = pynvml.nvmlDeviceGetUUID(device)
    with suppress(pynvml.NVMLError):
        major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(device)
        said["compute_cap"] = f"{major}.{minor}"
    with suppress(pynvml.NVMLError):
        said["memory_mib"] = pynvml.nvmlDeviceGetMemoryInfo(device).total >> 20
    with suppress(pynvml.NVMLError):
        said["mig"] = pynvml.nvmlDeviceGetMigMode(device)[0] == pynvml.NVML_DEVICE_MIG_ENABLE
    if said.get("mig"):
        said["slices"] = []
        for number in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(device)):
            with suppress(pynvml.NVMLError):
                part = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(device, number)
                said["slices"].append(pynvml.nvmlDeviceGetUUID(part))
    return said


def library_version() -> str | None:
    # 7f… r--p 00000000 08:01 1234  /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.126.09
    with suppress(OSError):
        found = re.search(r"libnvidia-ml\.so\.(\d+\.[\d.]+)", Path("/proc/self/maps").read_text())
        return found[1] if found else None
    return None


def libcuda() -> dict[str, Any] | None:
    # A mask would hide devices, and CUDA would number the fastest first.
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    cuda = load_library("nvcuda.dll" if WINDOWS else "libcuda.so.1")
    if cuda is None:
        return None
    code = cuda.cuInit(0)
    if code != 0:
        text = ctypes.c_char_p()
        cuda.cuGetErrorString(code, ctypes.byref(text))
        return {"error": (text.value or b"cuInit failed").decode(), "code": code}
    count = ctypes.c_int()
    cuda.cuDeviceGetCount(ctypes.byref(count))
    return {"devices": [cuda_device(cuda, index) for index in range(count.value)]}


def cuda_device(cuda: ctypes.CDLL, index: int) -> dict[str, Any]:
    name = ctypes.create_string_buffer(256)
    cuda.cuDeviceGetName(name, len(name), index)
    memory = ctypes.c_size_t()
    cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), index)
    capability = []
    for attribute in (75, 76):  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
        value = ctypes.c_int()
        cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, index)
        capability.append(str(value.value))
    raw = ctypes.create_string_buffer(16)
    cuda.cuDeviceGetUuid(raw, index)
    uuid = re.sub(r"(.{8})(.{4})(.{4})(.{4})(.{12})", r"\1-\2-\3-\4-\5", raw.raw.hex())
    return {
        "index": index,
        "name": name.value.decode(),
        "compute_cap": ".".join(capability),
        "memory_mib": memory.value >> 20,
        "uuid": f"GPU-{uuid}",
    }


if __name__ == "__main__":
    of_nvml = nvml()
    of_cuda = None if of_nvml and of_nvml.get("devices") else libcuda()
    json.dump({"nvml": of_nvml, "libcuda": of_cuda}, sys.stdout)
