"""Prove from inside an environment that it is what was planned."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from packaging.version import Version

from torchenv.actions.causes.texts import explain_end, find_known_texts
from torchenv.catalogue.builds import Cuda, Rocm
from torchenv.errors import ToolFailed
from torchenv.host.model import AmdDevice, Capability, Host, NvidiaDevice
from torchenv.host.probe.amd import OVERRIDE
from torchenv.installers import interpreter_in
from torchenv.plan import Build, Plan
from torchenv.plan.devices import devices_of
from torchenv.system.process import Command, Completed, Runner
from torchenv.system.values import frozen
from torchenv.workspace.records import Activation

SCRIPT = Path(__file__).parent.parent / "guest" / "check.py"

# Importing torch for the first time reads gigabytes, on a network disk for minutes.
TIME_LIMIT = 600.0


@frozen
class InsideReport:
    """What the script inside said; `data` is its JSON object."""

    data: Mapping[str, Any]

    @property
    def torch(self) -> Mapping[str, Any]:
        """What torch says of itself; empty where it could not be imported."""
        return self.data.get("torch") or {}

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices on which something was computed, by name."""
        computed = (item for item in self.data.get("devices", ()) if item["computes"])
        return tuple(str(item.get("name") or item["device"]) for item in computed)


def command(
    environment: Path,
    imports: tuple[str, ...],
    around: Activation | None = None,
    masks: tuple[str, ...] = (),
) -> Command:
    """Write the command that looks at an environment from inside, isolated and without what hides devices."""
    request = json.dumps({"imports": list(imports)})
    argv = (str(interpreter_in(environment)), "-I", "-B", str(SCRIPT), request)
    around = around or Activation()
    hiding = tuple(name for name in masks if name not in around.set)
    return Command(argv, cwd=environment, env=around.set, without=(*around.unset, *hiding))


def look(
    run: Runner,
    environment: Path,
    imports: tuple[str, ...] = (),
    around: Activation | None = None,
    masks: tuple[str, ...] = (),
) -> InsideReport:
    """Run the script inside, without the variables `masks`; raises `ToolFailed` where it gives no answer."""
    completed = run(command(environment, imports, around, masks), timeout=TIME_LIMIT)
    path = str(environment)
    if (ended := explain_end(completed, TIME_LIMIT, path)) is not None:
        raise ToolFailed(f"the check of {environment} failed: {ended.message}", hint=_run(completed))
    out = completed.check("check the new environment")
    try:
        return InsideReport(json.loads(out.strip().splitlines()[-1]))
    except (IndexError, json.JSONDecodeError):
        raise ToolFailed(f"the check of {environment} did not answer", hint=_run(completed)) from None


def _run(completed: Completed) -> str:
    return f"run `{completed.command}` to see all of it"


def activation(plan: Plan, host: Host) -> Activation | None:
    """Return what the environment of a plan needs of the variables around it; None where that is nothing."""
    shown = visibility(plan, host)
    accepted = any(warning.code == "override-accepted" for warning in plan.warnings)
    pretended = any(isinstance(item, AmdDevice) and item.override for item in devices_of("amd", host))
    # The plan is for the real chip, and the variable makes ROCm take it for another.
    misleading = (OVERRIDE,) if pretended and not accepted and _of_vendor("amd", plan) else ()
    return Activation(set=shown, unset=misleading) if shown or misleading else None


def _of_vendor(vendor: str, plan: Plan) -> bool:
    return plan.build is not None and plan.build.backend.vendor == vendor


def visibility(plan: Plan, host: Host) -> Mapping[str, str]:
    """Return the variables that show torch only the devices that the plan serves."""
    build = plan.build
    if build is None:
        return {}
    mine = [device for device in plan.devices if device.vendor == build.backend.vendor]
    served = ",".join(str(item.index) for item in mine if item.served)
    if not served or all(item.served for item in mine):
        return {}
    match build.backend.needs:
        case Cuda():
            return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": served}
        case Rocm():
            return {"HIP_VISIBLE_DEVICES": _among_gpus(plan, host)}
        case _:
            return {}


def mismatches(plan: Plan, host: Host, report: InsideReport) -> tuple[str, ...]:
    """Describe everything in which an environment differs from its plan; nothing where it is as planned."""
    build = plan.build
    assert build is not None
    return tuple(_mismatches(plan, build, host, report))


def _mismatches(plan: Plan, build: Build, host: Host, report: InsideReport) -> Iterator[str]:
    if error := report.data.get("torch_error"):
        known = next(find_known_texts(error, ""), None)
        yield f"torch does not import: {error}" + (f" ({known.message})" if known else "")
        return
    yield from _version(build, str(report.torch["version"]))
    yield from _runtime(build, report)
    yield from _codes(build, plan, host, report)
    yield from _computing(build, plan, report)
    for name, error in report.data["imports"].items():
        if error is not None:
            yield f"{name} does not import: {error}"


def _version(build: Build, found: str) -> Iterator[str]:
    # The package index's wheels carry their label inside only, and macOS wheels carry none.
    wanted = build.torch if build.index is not None else str(build.release.version)
    same = found == wanted if "+" in wanted else Version(found).public == Version(wanted).public
    if not same:
        yield f"torch is {found}, and {wanted} was planned"


def _runtime(build: Build, report: InsideReport) -> Iterator[str]:
    torch = report.torch
    match build.backend.needs:
        case Cuda(version=version) if torch.get("cuda") != str(version):
            yield f"torch was built for CUDA {torch.get('cuda')}, and CUDA {version} was planned"
        case Rocm() if not torch.get("hip"):
            yield "torch was not built for ROCm"
        case _:
            pass


def _codes(build: Build, plan: Plan, host: Host, report: InsideReport) -> Iterator[str]:
    """Compare the code that the build really holds with the devices, whatever the catalogue says of it."""
    if not isinstance(build.backend.needs, Cuda):
        return
    # sm_75 sm_80 sm_86 sm_90 sm_100 sm_120
    numbers = [item[3:].rstrip("af") for item in report.torch.get("codes", ()) if item.startswith("sm_")]
    codes = [Capability.of_code(int(number)) for number in numbers if number.isdecimal()]
    served = {device.index for device in plan.devices if device.served}
    for device in devices_of("nvidia", host):
        if not isinstance(device, NvidiaDevice) or device.index not in served:
            continue
        capability = device.compute_capability
        if (
            codes
            and capability
            and not any(build.backend.needs.rule.runs(code, capability) for code in codes)
        ):
            yield f"torch has no kernels for {device.name} ({capability}), only for {_list_codes(codes)}"


def _computing(build: Build, plan: Plan, report: InsideReport) -> Iterator[str]:
    results = report.data.get("devices", ())
    for result in results:
        if not result["computes"]:
            why = result.get("error") or "the result differs from the CPU's"
            known = next(find_known_texts(str(why), ""), None)
            because = f" ({known.message})" if known else ""
            yield f"{result.get('name') or result['device']} does not compute: {why}{because}"
    # Availability on paper is not enough: a plan for devices must have computed on one.
    expected = not build.unproven and any(device.served for device in plan.devices)
    if expected and not results:
        names = ", ".join(device.name for device in plan.devices if device.served)
        yield f"torch sees no device, but this machine has {names}"


def _among_gpus(plan: Plan, host: Host) -> str:
    # HIP counts the GPUs that ROCm shows it, in the order of the topology.
    indices = [item.index for item in devices_of("amd", host)]
    served = (device.index for device in plan.devices if device.vendor == "amd" and device.served)
    return ",".join(str(indices.index(item)) for item in served)


def _list_codes(codes: list[Capability]) -> str:
    return ", ".join(map(str, sorted(codes)))
