"""Whatever a tool prints, the probe has an answer; what it cannot read is never an error of its own."""

import json
from typing import Any

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
