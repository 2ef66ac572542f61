"""Whatever a tool prints, the probe has an answer; what it cannot read is never an error of its own."""

import json
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.machine import SAMPLES

from torchenv.host.model import Evidence, Host
from torchenv.host.probe import amd, intel, nvidia, nvidia_smi, pythons, reparse, system

TEXTS = [path.read_bytes().decode() for path in SAMPLES.iterdir()]

# What the parsers look for in JSON.
KEYS = st.sampled_from(
    [
        *(
            "devices",
            "device_list",
            "SPDisplaysDataType",
            "sppci_model",
            "device_name",
            "index",
            "name",
            "uuid",
        ),
        *("slices", "error", "code", "driver", "why", "torch", "python", "pyvenv.cfg", "conda-meta"),
        *("compute_cap", "memory_mib", "mig", "node_id", "library"),
    ]
)

ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)

SOURCES = (
    *(
        system.PYTHON,
        system.KERNEL_FILE,
        system.CGROUP_FILE,
        system.LDD,
        system.SYSCTL,
        system.SW_VERS,
        system.PROFILER,
    ),
    *(nvidia.DRIVER_FILE, nvidia.MODULE_FILE, nvidia.MODEL_FILE, nvidia.TEGRA_FILE, f"{nvidia.GPU_FILES}/1"),
    *(nvidia.NVML, nvidia.LIBCUDA, nvidia.QUERY, nvidia.OLD_QUERY, nvidia.XML, nvidia.SCREEN, nvidia.LIST),
    *(f"{amd.NODES}/1/properties", amd.ROCMINFO, amd.ENUMERATOR, amd.AMD_SMI, amd.AMD_SMI_LIST),
    *(intel.XPU_SMI, pythons.LAUNCHER, "python /usr/bin/python3", "environment /env", "EnumDisplayDevices"),
    *("$CUDA_VISIBLE_DEVICES", "$HIP_VISIBLE_DEVICES", "$ZE_AFFINITY_MASK", "$HSA_OVERRIDE_GFX_VERSION"),
)


# What was recorded, one after the other, and what has broken parsers before; each to this length.
LENGTH = 200_000
REPEATED = (
    "\n".join(TEXTS),
    "\n",
    " ",
    "9",
    "0, ",
    "| ",
    "[",
    '{"a":',
    "<gpu>",
    "GPU 0: ",
    "*" * 80 + "\n",
    "x: y\n",
)


@pytest.mark.skipif(sys.platform != "linux", reason="reads its own size from /proc")
@pytest.mark.parametrize("source", SOURCES)
def test_a_tool_that_prints_without_end_takes_bounded_memory_and_time(source: str) -> None:
    from tests.support.limits import ends_within_limits

    def look(text: str) -> None:
        for outcome in ("read", "failed"):
            evidence = (Evidence(source, outcome, text),)
            reparse(Host(system="linux", machine="x86_64", evidence=evidence))

    # What is loaded by the first look counts for no text.
    look(TEXTS[0])

    def read() -> None:
        for fragment in REPEATED:
            look(fragment * (LENGTH // len(fragment) + 1))

    assert ends_within_limits(read)


JSON = st.dictionaries(KEYS, ANYTHING, max_size=3).map(json.dumps) | ANYTHING.map(json.dumps)


@st.composite
def cut(draw: st.DrawFn) -> str:
    """Return a recorded text that was cut short, or something else altogether."""
    text = draw(st.sampled_from(TEXTS))
    return draw(st.just(text[: draw(st.integers(0, len(text)))]) | st.text() | JSON)


# The first text of a run is slow to make.
patient = settings(derandomize=True, suppress_health_check=[HealthCheck.too_slow], deadline=None)

SAID = st.tuples(st.sampled_from(["read", "failed"]), cut())


@patient
@given(st.dictionaries(st.sampled_from(SOURCES), SAID, max_size=6))
def test_any_evidence_is_understood(said: dict[str, tuple[str, str]]) -> None:
    evidence = tuple(Evidence(source, outcome, text) for source, (outcome, text) in said.items())
    host = reparse(Host(system="linux", machine="x86_64", evidence=evidence))
    again = Host.from_json(json.dumps(host.to_document()), "host.json")
    assert again == host


@patient
@given(cut())
def test_a_row_is_a_row_only_with_a_card_in_it(text: str) -> None:
    # A Jetson's tool names no driver.
    for row in nvidia_smi.parse_query(text):
        assert row["name"]
