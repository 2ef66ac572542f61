"""Report from inside an environment what its torch is, and whether it computes.

Run as a file by that environment's own interpreter (`python -I -B check.py REQUEST`), so it uses the standard
library and torch alone and may not import torchenv. REQUEST is JSON: {"imports": ["torchvision", ...]}.
Prints one JSON object on the last line of its output, whatever torch itself prints before.
"""

import importlib
import json
import platform
import re
import sys
import sysconfig
import time
import warnings
from typing import Any


def main() -> int:
    request = json.loads(sys.argv[1])
    if not sys.flags.isolated:
        # What lies beside this file is no part of what the user's own Python would import.
        del sys.path[0]
    report: dict[str, Any] = {
        "python": platform.python_version(),
        "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        "prefix": sys.prefix,
        "packages": list_installed(),
    }
    # It is nothing that a person should look into: numpy was not asked for.
    warnings.filterwarnings("ignore", "Failed to initialize NumPy")
    began = time.perf_counter()
    try:
        torch = importlib.import_module("torch")
    except BaseException as error:
        report["torch_error"] = describe_error(error)
    else:
        report["import_seconds"] = round(time.perf_counter() - began, 3)
        report["torch"] = describe(torch)
        report["devices"] = [compute(torch, name) for name in devices(torch)]
    report["imports"] = {name: try_import(name) for name in request["imports"]}
    print()
    print(json.dumps(report))
    return 0


def list_installed() -> dict[str, str]:
    from importlib.metadata import distributions

    found: dict[str, str] = {}
    for package in distributions():
        name = package.metadata["Name"]
        if name:
            found[canonical(name)] = package.version
    return dict(sorted(found.items()))


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def describe(torch: Any) -> dict[str, Any]:
    version = torch.version
    return {
        "version": str(torch.__version__),
        "cuda": getattr(version, "cuda", None),
        "hip": getattr(version, "hip", None),
        "xpu": getattr(version, "xpu", None),
        "git": getattr(version, "git_version", None),
        "codes": codes(torch),
        "file": torch.__file__,
    }


def codes(torch: Any) -> list[str]:
    """List the targets that the build has code for; this works without a device."""
    try:
        flags: str | None = torch._C._cuda_getArchFlags()
    except AttributeError:
        return []
    return (flags or "").split()


def devices(torch: Any) -> list[str]:
    names = []
    if torch.cuda.is_available():
        names += [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    xpu = getattr(torch, "xpu", None)
    if xpu is not None and xpu.is_available():
        names += [f"xpu:{index}" for index in range(xpu.device_count())]
    mps = getattr(torch.backends, "mps", None)
    if mps is not None and mps.is_available():
        names.append("mps")
    return names


def compute(torch: Any, name: str) -> dict[str, Any]:
    """Multiply two small matrices on the device and on the CPU: available is not enough."""
    result: dict[str, Any] = {"device": name}
    try:
        kind = name.partition(":")[0]
        if kind in ("cuda", "xpu"):
            properties = getattr(torch, kind).get_device_properties(int(name.partition(":")[2]))
            result["name"] = properties.name
            if kind == "cuda" and torch.version.hip is None:
                result["capability"] = f"{properties.major}.{properties.minor}"
            else:
                result["gfx"] = getattr(properties, "gcnArchName", "").partition(":")[0] or None
        left = torch.arange(64, dtype=torch.float32).reshape(8, 8) / 64
        right = left.flip(0)
        there = (left.to(name) @ right.to(name)).cpu()
        result["computes"] = bool(torch.allclose(there, left @ right, rtol=1e-2, atol=1e-2))
    except BaseException as error:
        result["computes"] = False
        result["error"] = describe_error(error)
    return result


def try_import(name: str) -> str | None:
    try:
        importlib.import_module(name)
    except BaseException as error:
        return describe_error(error)
    return None


def describe_error(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0].strip() if lines else ''}"


if __name__ == "__main__":
    sys.exit(main())
