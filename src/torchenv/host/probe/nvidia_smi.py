"""What `nvidia-smi` prints: its table of values, its XML, its screen, its list and its complaints."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from xml.etree.ElementTree import Element

from torchenv.host.model import WrittenVersion
from torchenv.system.values import frozen

QUERY = (
    "index",
    "uuid",
    "name",
    "driver_version",
    "memory.total",
    "compute_cap",
    "mig.mode.current",
)

# Drivers up to 470 know no `compute_cap`, and those before 450 no MIG: they refuse the whole question.
OLD_QUERY = QUERY[:5]


@frozen
class Complaint:
    """Something that keeps the driver from answering, with what to do about it."""

    code: str
    message: str


@frozen
class Screen:
    """What the plain screen says; names may be cut short there, and the CUDA version be unknown."""

    driver: WrittenVersion | None
    cuda: str | None
    names: tuple[str, ...]
    mig: tuple[bool, ...] = ()


@frozen(kw_only=True)
class ListedGpu:
    """A GPU of the XML; `virtual` is a slice that a hypervisor gives to this machine."""

    name: str
    uuid: str | None
    architecture: str | None
    mig: bool
    virtual: bool


@frozen
class Log:
    """What the XML says; it knows no compute capability."""

    driver: WrittenVersion | None
    cuda: str | None
    devices: tuple[ListedGpu, ...]


def query(fields: Sequence[str]) -> tuple[str, ...]:
    """Return the command that asks for these fields."""
    return ("nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,nounits")


def parse_query(text: str) -> tuple[Mapping[str, str | None], ...]:
    """Read one row for each GPU; a value that the tool does not know is None.

    The line with the names of the fields decides; without it each value is known by its shape.
    Complaints, which are printed on the same stream, are no rows: they name no driver and no GPU.
    """
    # name, compute_cap, driver_version, memory.total [MiB]
    # NVIDIA H200, 9.0, 580.95.05, 143771
    rows = []
    fields: list[str] = []
    for line in text.splitlines():
        values = [value.strip() for value in line.split(",")]
        names = [re.sub(r" \[.*\]", "", value) for value in values]
        if "name" in names and "driver_version" in names:
            fields = names
            continue
        row = (
            dict(zip(fields, map(_parse_value, values), strict=True))
            if len(values) == len(fields)
            else _clean_values(values)
        )
        # A Jetson's tool names no driver in its rows.
        driver = row.get("driver_version")
        is_driver = re.fullmatch(_SHAPES["driver_version"], driver) if driver else len(values) == len(fields)
        if row.get("name") and is_driver:
            rows.append(row)
    return tuple(rows)


def parse_screen(text: str) -> Screen:
    # | NVIDIA-SMI 610.57.04           KMD Version: 610.57.04        CUDA UMD Version: 13.3     |
    # The first number is the tool's own: in WSL and in containers it is not the driver's.
    driver = re.search(r"\b(?:Driver|KMD) Version:\s*([\d.]+)", text)
    cuda = re.search(r"\bCUDA(?:\s+\w+)?\s+Version:\s*(\d[\d.]*)", text)
    # |   0  NVIDIA GeForce RTX 5090        Off |   00000000:01:00.0 Off |                  N/A |
    state = r"(?:On|Off|N/A|WDDM|WDM|TCC|MCDM)"
    rows = list(re.finditer(rf"^\|\s+\d+\s\s+(\S.*?)\s+{state}\s+\|.*\|.*\|\s*$", text, re.MULTILINE))
    ends = [*(row.start() for row in rows[1:]), len(text)][: len(rows)]
    # The last line of a GPU's three:  |                               |              | Enabled |
    mig = [
        bool(re.search(r"^\|\s*\|\s*\|\s*Enabled\s*\|", text[row.end() : end], re.MULTILINE))
        for row, end in zip(rows, ends, strict=True)
    ]
    return Screen(
        WrittenVersion.read(driver[1]) if driver else None,
        cuda[1] if cuda else None,
        tuple(row[1] for row in rows),
        tuple(mig),
    )


def parse_xml(text: str) -> Log | None:
    """Read the log of `nvidia-smi -q -x`; None for a text that is not one."""
    # An ordinary machine never gets here, and should not pay for this.
    from xml.etree import ElementTree as Xml

    try:
        # The text comes from the driver's own tool, which declares no entities.
        log = Xml.fromstring(text)  # noqa: S314
    except Xml.ParseError:
        return None

    def read_text(element: Element, path: str) -> str | None:
        return _parse_value((element.findtext(path) or "").strip())

    return Log(
        WrittenVersion.read(read_text(log, "driver_version") or ""),
        read_text(log, "cuda_version"),
        tuple(
            ListedGpu(
                name=read_text(gpu, "product_name") or "NVIDIA GPU",
                uuid=read_text(gpu, "uuid"),
                architecture=read_text(gpu, "product_architecture"),
                mig=read_text(gpu, "mig_mode/current_mig") == "Enabled",
                virtual=read_text(gpu, "gpu_virtualization_mode/virtualization_mode") == "VGPU",
            )
            for gpu in log.iterfind("gpu")
        ),
    )


def parse_list(text: str) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    """Read `nvidia-smi -L`: for each GPU its name, its UUID and the UUIDs of its MIG slices."""
    # GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-00000000-0000-0000-0000-000000000000)
    #   MIG 1g.10gb     Device  0: (UUID: MIG-00000000-0000-0000-0000-000000000001)
    devices: list[tuple[str, str, list[str]]] = []
    for line in text.splitlines():
        if gpu := re.match(r"GPU \d+: (.*) \(UUID: (\S+)\)", line):
            devices.append((gpu[1], gpu[2], []))
        elif devices and (part := re.match(r"\s+MIG .*\(UUID: (\S+)\)", line)):
            devices[-1][2].append(part[1])
    return tuple((name, uuid, tuple(parts)) for name, uuid, parts in devices)


def complaint(text: str) -> Complaint | None:
    """Recognize what NVML or the tool says when the driver cannot be asked.

    NVML has words of its own in nvidia-ml-py for what the tool says.
    """
    return next(
        (known for pattern, known in _COMPLAINTS if re.search(pattern, text, re.IGNORECASE | re.MULTILINE)),
        None,
    )


def library_version(text: str) -> str | None:
    # NVML library version: 580.126
    found = re.search(r"NVML library version:\s*(\d[\d.]*)", text)
    return found[1] if found else None


_COMPLAINTS = (
    (
        r"Driver/library version mismatch|NVML/RM version mismatch",
        Complaint("driver-library-mismatch", "the driver was only partly updated"),
    ),
    (
        r"couldn't communicate with the NVIDIA driver|Driver Not Loaded",
        Complaint("driver-not-loaded", "the NVIDIA driver is not loaded"),
    ),
    (
        r"couldn't find libnvidia-ml",
        Complaint("nvml-missing", "the NVIDIA driver's library libnvidia-ml is missing"),
    ),
    (
        r"Insufficient Permissions",
        Complaint("nvml-permission", "this user may not use the NVIDIA driver"),
    ),
    (
        r"GPU is lost|fallen off the bus|Unable to determine the device handle for GPU",
        Complaint("gpu-lost", "the driver lost a GPU: reboot to get it back"),
    ),
    (
        r"Failed to initialize NVML: Unknown Error|^Unknown Error$",
        Complaint(
            "nvml-failed",
            "NVML fails with `Unknown Error`: a running container has lost its GPUs; start it again",
        ),
    ),
    (
        r"blocked by the operating system|operating system has blocked",
        Complaint(
            "wsl-blocked",
            "Windows blocks the GPU for WSL: update the driver in Windows and run `wsl --shutdown`",
        ),
    ),
    (
        r"nvidia-smi: (?:command )?not found",
        Complaint("smi-missing", "nvidia-smi not found"),
    ),
    (
        r"No devices were found",
        Complaint("no-devices", "the NVIDIA driver is loaded and finds no GPU"),
    ),
)


_SHAPES = {
    "driver_version": r"\d{2,4}\.\d+(?:\.\d+)*",
    "compute_cap": r"\d{1,2}\.\d",
    "index": r"\d{1,2}",
    "memory.total": r"\d{3,}",
    "uuid": r"(?:GPU-)?[0-9a-f]{8}-[0-9a-f-]+",
    "mig.mode.current": r"Enabled|Disabled",
    "name": r".*[A-Za-z].*",
}


def _clean_values(values: Sequence[str]) -> dict[str, str | None]:
    # 581.42, NVIDIA GeForce RTX 4070 Ti, 8.9
    row: dict[str, str | None] = {}
    for value in values:
        fits = (name for name, shape in _SHAPES.items() if name not in row and re.fullmatch(shape, value))
        name = next(fits, None)
        if name and _parse_value(value):
            row[name] = value
    return row


def _parse_value(value: str) -> str | None:
    # [N/A], [Not Supported], N/A, ERR!, Not Found, [Unknown Error]
    odd = re.fullmatch(r"\[.*\]|N/A|ERR!|Not Found|Not Supported|Unknown Error|None|", value)
    return None if odd else value
