"""The doctor names the cause and the cure, for faults that are made for real and for those on record."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import venv
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from packaging.version import Version

import torchenv
from torchenv.actions import doctor
from torchenv.actions.causes.devices import _CURES, find_device_causes
from torchenv.actions.causes.machine import MachineFacts, Mount, find_machine_causes, read_machine
from torchenv.actions.causes.packages import find_package_causes
from torchenv.actions.causes.texts import KNOWN, find_known_texts
from torchenv.actions.doctor import Diagnosis, diagnose
from torchenv.catalogue import resources
from torchenv.environment.findings import EnvironmentFinding
from torchenv.environment.inspect import Installation, Layout, describe, distributions
from torchenv.errors import InputError
from torchenv.host.model import (
    Amd,
    AmdDevice,
    Capability,
    Host,
    Nvidia,
    NvidiaDevice,
    Problem,
    Status,
    WrittenVersion,
)
from torchenv.render.doctor import describe_diagnosis, encode_diagnosis
from torchenv.system.process import Command, Completed, Programs, Runner

CATALOGUE = resources.catalogue()
HOST = Host(system="linux", machine="x86_64")
ROOMY = MachineFacts(
    temporary=Mount(path="/tmp", free=1 << 34, size=1 << 35),
    shared=Mount(path="/dev/shm", free=1 << 34, size=1 << 34),
)

# As much of torch as the check inside asks for.
TORCH = """\
from types import SimpleNamespace as N
from torch import version
__version__ = version.__version__
class Tensor:
    def reshape(self, *shape): return self
cuda = N(is_available=lambda: False)
backends = N()
_C = N()
"""


def make_environment(path: Path, *, torch: str = TORCH, version: str = "2.15.0+cpu") -> Path:
    """Make a venv with a torch that is nothing but Python."""
    venv.create(path, symlinks=True)
    site = next(path.glob("lib/python3*/site-packages"))
    (site / "torch").mkdir()
    (site / "torch" / "__init__.py").write_text(torch)
    (site / "torch" / "version.py").write_text(f"__version__ = '{version}'\ncuda = None\nhip = None\n")
    add(site, "torch", version.partition("+")[0])
    return site


def add(site: Path, name: str, version: str, *requires: str, installer: str = "uv") -> Path:
    info = site / f"{name}-{version}.dist-info"
    info.mkdir()
    lines = ["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {wanted}" for wanted in requires]
    (info / "METADATA").write_text("\n".join(lines) + "\n")
    (info / "INSTALLER").write_text(installer)
    return info


def examine(path: Path, host: Host = HOST, **environ: str) -> Diagnosis:
    return diagnose(path, host, CATALOGUE, environ, Programs(os.environ), machine=ROOMY)


def codes(diagnosis: Diagnosis) -> list[str]:
    return [finding.code for finding in diagnosis.findings]


def card(
    name: str = "NVIDIA GeForce RTX 4090", capability: str = "8.9", *, visible: bool = True
) -> NvidiaDevice:
    return NvidiaDevice(index=0, name=name, compute_capability=Capability.parse(capability), visible=visible)


def nvidia(driver: str, *devices: NvidiaDevice, tegra: bool = False) -> Host:
    found = Nvidia(
        status=Status.FOUND,
        driver=WrittenVersion.read(driver),
        devices=devices or (card(),),
        tegra=tegra,
    )
    return replace(HOST, nvidia=found)


def installation(torch: str, layout: Layout = Layout.VENV, **more: object) -> Installation:
    return Installation(path=Path("/env"), layout=layout, python="3.12.4", torch=torch, **more)  # type: ignore[arg-type]


def of_devices(torch: str, host: Host, **environ: str) -> list[tuple[str, str | None]]:
    found = find_device_causes(installation(torch), host, CATALOGUE, environ)
    return [(finding.code, finding.cure) for finding in found]


# Made for real


def test_a_well_environment_has_no_findings(tmp_path: Path) -> None:
    make_environment(tmp_path / "env")
    diagnosis = examine(tmp_path / "env")
    assert diagnosis.is_well
    said = f"{tmp_path / 'env'}: torch 2.15.0+cpu imports and computes on the CPU"
    assert describe_diagnosis(diagnosis) == said


def test_what_is_no_environment_is_wrong_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a Python environment"):
        examine(tmp_path)


def test_an_environment_without_torch_says_so(tmp_path: Path) -> None:
    venv.create(tmp_path / "env", symlinks=True)
    assert codes(examine(tmp_path / "env")) == ["no-torch"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signals")
@pytest.mark.parametrize(
    ("number", "why"),
    [
        ("SIGILL", "the processor lacks instructions that the build uses"),
        ("SIGKILL", "the system or a container ran out of memory"),
        ("SIGSEGV", "two incompatible libraries are loaded"),
    ],
)
def test_a_signal_in_the_import_is_explained(tmp_path: Path, number: str, why: str) -> None:
    quiet = "import os, resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0))"
    code = f"{quiet}\nos.kill(os.getpid(), {int(getattr(signal, number))})\n"
    make_environment(tmp_path / "env", torch=code)
    (found,) = examine(tmp_path / "env").findings
    assert found.code == "import-crashes"
    assert found.message.startswith(f"importing torch was ended by {number}: {why}")


def test_an_import_error_that_nobody_knows_is_told_as_it_is(tmp_path: Path) -> None:
    make_environment(tmp_path / "env", torch="raise RuntimeError('never heard of')\n")
    (found,) = examine(tmp_path / "env").findings
    assert (found.code, found.message) == (
        "import-fails",
        "torch does not import: RuntimeError: never heard of",
    )


def test_a_torch_from_pythonpath_is_found_by_its_import_and_by_its_directory(tmp_path: Path) -> None:
    make_environment(tmp_path / "env")
    other = tmp_path / "other" / "torch"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text(TORCH)
    (other / "version.py").write_text("__version__ = '2.9.0+cpu'\ncuda = None\nhip = None\n")
    diagnosis = examine(tmp_path / "env", PYTHONPATH=str(tmp_path / "other"))
    assert codes(diagnosis) == ["shadowed", "python-path"]
    assert diagnosis.findings[1].cure == "unset PYTHONPATH"


def test_a_dead_interpreter_is_not_started(tmp_path: Path) -> None:
    make_environment(tmp_path / "env")
    for name in ("python", "python3"):
        (tmp_path / "env" / "bin" / name).unlink()
    (tmp_path / "env" / "bin" / "python").symlink_to(tmp_path / "gone")
    assert codes(examine(tmp_path / "env")) == ["interpreter-gone"]


def test_a_moved_environment_says_from_where(tmp_path: Path) -> None:
    make_environment(tmp_path / "old")
    (tmp_path / "old").rename(tmp_path / "new")
    assert codes(examine(tmp_path / "new")) == ["moved"]


def test_a_label_that_is_not_what_was_compiled_is_found(tmp_path: Path) -> None:
    make_environment(tmp_path / "env", version="2.15.0+cu132")
    assert "wrong-label" in codes(examine(tmp_path / "env"))


def test_a_library_path_with_cudnn_is_found(tmp_path: Path) -> None:
    make_environment(tmp_path / "env")
    (tmp_path / "cuda").mkdir()
    (tmp_path / "cuda" / "libcudnn.so.9").touch()
    diagnosis = examine(tmp_path / "env", LD_LIBRARY_PATH=str(tmp_path / "cuda"))
    assert codes(diagnosis) == ["library-path"]
    assert diagnosis.findings[0].cure == "unset LD_LIBRARY_PATH"


def test_what_a_package_requires_and_lacks_is_found_and_triton_has_its_own_code(tmp_path: Path) -> None:
    site = make_environment(tmp_path / "env")
    add(site, "trainer", "1.0", "numpy>=2", "filelock", "triton~=3.8.0", "torch>=2", 'rich; extra == "ui"')
    add(site, "numpy", "1.26.4")
    add(site, "triton", "3.4.0")
    diagnosis = examine(tmp_path / "env")
    assert [(finding.code, finding.message) for finding in diagnosis.findings] == [
        ("requirement-unmet", "trainer 1.0 requires numpy>=2, and 1.26.4 is installed"),
        ("requirement-missing", "trainer 1.0 requires filelock, and it is not installed"),
        ("triton-too-old", "trainer 1.0 requires triton~=3.8.0, and 3.4.0 is installed"),
    ]
    assert diagnosis.findings[0].cure == f"uv pip install --python {tmp_path / 'env'} 'numpy>=2'"


@pytest.mark.skipif(not hasattr(os, "ST_NOEXEC") or not Path("/proc").is_dir(), reason="needs Linux's /proc")
def test_a_temporary_directory_that_runs_no_code_is_found(tmp_path: Path) -> None:
    if not os.statvfs("/proc").f_flag & os.ST_NOEXEC:
        pytest.skip("/proc may run programs here")
    make_environment(tmp_path / "env")
    diagnosis = diagnose(
        tmp_path / "env", HOST, CATALOGUE, {"TMPDIR": "/proc"}, Programs(os.environ), machine=None
    )
    assert ("noexec", "/proc") in [(finding.code, finding.path) for finding in diagnosis.findings]


def test_the_document_is_as_its_schema_says(tmp_path: Path) -> None:
    from jsonschema import validate

    schema = json.loads(Path(__file__).parents[2].joinpath("docs/schemas/torchenv.doctor-1.json").read_text())
    make_environment(tmp_path / "env", torch="raise RuntimeError('x')\n")
    document = encode_diagnosis(examine(tmp_path / "env"))
    validate(document, schema)
    assert (document["well"], document["findings"][0]["code"]) == (False, "import-fails")


# By what a host is


def test_a_build_for_the_cpu_on_a_machine_with_a_gpu() -> None:
    assert of_devices("2.15.0+cpu", nvidia("610.10")) == [("cpu-build", "torchenv create 2.15")]
    assert of_devices("2.15.0+cpu", HOST) == []


def test_a_driver_below_the_floor_of_the_build() -> None:
    assert of_devices("2.15.0+cu132", nvidia("550.54")) == [("driver-too-old", "torchenv plan")]
    assert of_devices("2.15.0+cu132", nvidia("610.10")) == []


def test_a_card_that_the_build_holds_no_code_for() -> None:
    old = card("NVIDIA GeForce GTX 1080 Ti", "6.1")
    assert of_devices("2.15.0+cu132", nvidia("580.95", old)) == [("no-code", "torchenv plan")]
    radeon = Amd(status=Status.FOUND, devices=(AmdDevice(index=0, name="Old", gfx="gfx803"),))
    assert of_devices("2.15.0+rocm7.14", replace(HOST, amd=radeon)) == [("no-code", "torchenv plan")]


def test_a_mask_that_hides_the_devices() -> None:
    host = nvidia("610.10", card(visible=False))
    assert of_devices("2.15.0+cu132", host, CUDA_VISIBLE_DEVICES="") == [
        ("hidden-by-mask", "unset CUDA_VISIBLE_DEVICES")
    ]


def test_a_container_that_was_started_without_the_runtime() -> None:
    host = replace(HOST, container=True, nvidia=Nvidia(status=Status.UNREADABLE))
    assert of_devices("2.15.0+cu132", host) == [("container-runtime", "docker run --gpus all …")]


def test_a_driver_at_odds_with_its_library() -> None:
    problem = Problem("driver-library-mismatch", "nvidia-smi", "Driver/library version mismatch")
    assert of_devices("2.15.0+cu132", replace(HOST, problems=(problem,))) == [
        ("driver-library-mismatch", "sudo reboot")
    ]


def test_a_jetson_with_a_wheel_for_servers() -> None:
    host = replace(nvidia("540.4.0", tegra=True), machine="aarch64")
    assert ("jetson-wheel", "torchenv plan") in of_devices("2.15.0+cu132", host)


def test_a_mac_below_the_floor_of_mps() -> None:
    host = Host(system="darwin", machine="arm64", macos=Version("14.5"))
    (found,) = of_devices("2.15.0", host)
    assert found == ("macos-too-old", "torchenv create 2.14")


# By the disks, devices and variables of a machine


def of_machine(facts: MachineFacts, host: Host = HOST, **environ: str) -> list[tuple[str, str]]:
    found = find_machine_causes(installation("2.15.0+cu132"), facts, host, environ)
    return [(finding.code, finding.path) for finding in found]


def test_devices_that_this_user_may_not_open() -> None:
    facts = MachineFacts(closed=("/dev/kfd", "/dev/nvidia0"))
    found = list(find_machine_causes(installation("2.15.0+rocm7.14"), facts, HOST, {}))
    assert {finding.code for finding in found} == {"device-permission"}
    assert [(finding.path, finding.cure) for finding in found] == [
        ("/dev/kfd", "sudo usermod -aG render,video $USER"),
        ("/dev/nvidia0", "sudo chmod a+rw /dev/nvidia0"),
    ]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="becomes another user")
def test_a_device_file_that_is_closed_to_this_user_is_found_for_real() -> None:
    with TemporaryDirectory() as name:
        root = Path(name)
        root.chmod(0o755)
        (root / "dev").mkdir()
        (root / "dev" / "kfd").touch(mode=0o000)
        child = os.fork()
        if child == 0:
            if os.geteuid() == 0:
                # Root may open everything.
                os.setuid(65534)
            facts = read_machine(installation("2.15.0+rocm7.14"), {}, root=root)
            os._exit(0 if facts.closed == (str(root / "dev" / "kfd"),) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_linux_driver_inside_wsl() -> None:
    facts = MachineFacts(
        libcudas=("/usr/lib/wsl/lib/libcuda.so.1", "/usr/lib/x86_64-linux-gnu/libcuda.so.550.54")
    )
    assert of_machine(facts) == []
    assert of_machine(facts, replace(HOST, wsl=True)) == [("wsl-libcuda", facts.libcudas[1])]


def test_file_systems_that_are_full_small_or_run_no_code() -> None:
    facts = MachineFacts(
        environment=Mount(path="/env", free=1 << 30, size=1 << 30, is_noexec=True),
        temporary=Mount(path="/tmp", free=1 << 20, size=1 << 30),
        shared=Mount(path="/dev/shm", free=1 << 26, size=1 << 26),
    )
    assert of_machine(facts) == [("noexec", "/env"), ("tmp-full", "/tmp"), ("shm-small", "/dev/shm")]
    assert of_machine(ROOMY) == []


def test_the_users_own_site_comes_before_a_conda_environment(tmp_path: Path) -> None:
    site = tmp_path / "home/.local/lib/python3.12/site-packages"
    own = tmp_path / "conda/lib/python3.12/site-packages"
    for place in (site, own):
        place.mkdir(parents=True)
        add(place, "numpy", "2.3.0")
    conda = Installation(
        path=tmp_path / "conda", layout=Layout.CONDA, python="3.12.4", site_packages=(own,), torch="2.15.0"
    )
    environ = {"HOME": str(tmp_path / "home")}
    (found,) = find_machine_causes(conda, MachineFacts(), HOST, environ)
    assert (found.code, found.path, found.cure) == ("user-site", str(site), "export PYTHONNOUSERSITE=1")
    assert not list(find_machine_causes(conda, MachineFacts(), HOST, {**environ, "PYTHONNOUSERSITE": "1"}))
    assert not list(find_machine_causes(replace(conda, layout=Layout.VENV), MachineFacts(), HOST, environ))


# By the packages


def of_packages(path: Path) -> list[tuple[str, str]]:
    found = describe(path)
    return [
        (finding.code, finding.message)
        for finding in find_package_causes(found, distributions(found), CATALOGUE)
    ]


def test_companions_of_another_build_and_of_another_torch(tmp_path: Path) -> None:
    site = make_environment(tmp_path / "env", version="2.15.0+cu132")
    release = next(release for release in CATALOGUE.releases if str(release.version) == "2.15.0")
    paired = release.companions["torchvision"].version
    add(site, "torchvision", f"{paired}+cu126")
    add(site, "torchaudio", "2.8.0")
    audio = release.companions["torchaudio"].version
    assert of_packages(tmp_path / "env") == [
        ("other-build", f"torchvision {paired}+cu126 is installed beside torch 2.15.0+cu132"),
        ("other-build", f"torchaudio 2.8.0 is installed beside torch 2.15.0, whose companion is {audio}"),
    ]


def test_two_torches_on_one_path(tmp_path: Path) -> None:
    make_environment(tmp_path / "env")
    base = tmp_path / "usr" / "lib" / f"python3.{sys.version_info[1]}" / "site-packages" / "torch"
    base.mkdir(parents=True)
    (base / "version.py").write_text("__version__ = '2.9.0'\n")
    cfg = tmp_path / "env" / "pyvenv.cfg"
    settings = cfg.read_text().replace("= false", "= true")
    cfg.write_text(
        "".join(
            f"home = {tmp_path / 'usr' / 'bin'}\n" if line.startswith("home") else f"{line}\n"
            for line in settings.splitlines()
        )
    )
    assert [code for code, _ in of_packages(tmp_path / "env")] == ["two-torches"]


def test_what_pip_put_over_condas_own(tmp_path: Path) -> None:
    site = tmp_path / "env/lib/python3.12/site-packages"
    site.mkdir(parents=True)
    (tmp_path / "env/conda-meta").mkdir()
    (tmp_path / "env/conda-meta/numpy-2.2.0-py312h1_0.json").write_text("{}")
    (tmp_path / "env/conda-meta/rich-14.0-py312h1_0.json").write_text("{}")
    (site / "torch").mkdir()
    (site / "torch/version.py").write_text("__version__ = '2.15.0+cu132'\n")
    add(site, "numpy", "2.3.0", installer="pip")
    add(site, "rich", "14.0", installer="conda")
    assert of_packages(tmp_path / "env") == [
        ("conda-pip-mixed", "conda installed numpy-2.2.0-py312h1_0, and pip installed 2.3.0 over it")
    ]


# By what was printed, as public reports have it

REPORTED: Mapping[str, str] = {
    "checkpoint-too-new": "global metadata read failed: too many values to unpack (expected 5)",
    "openmp-twice": "OMP: Error #15: Initializing libiomp5.so, but found libomp.so already initialized.",
    "numpy-abi": "A module that was compiled using NumPy 1.x cannot be run in NumPy 2.3.0 as it may crash.",
    "glibc-too-old": "ImportError: /lib64/libc.so.6: version `GLIBC_2.28' not found (required by x)",
    "libstdcxx-too-old": "ImportError: libstdc++.so.6: version `GLIBCXX_3.4.30' not found (required by x)",
    "noexec": "ImportError: /mnt/e/libtorch_cpu.so: failed to map segment from shared object",
    "curand-missing": "ImportError: libcurand.so.10: cannot open shared object file: No such file",
    "library-path": "libcudnn.so.9: undefined symbol: cudnnGetLibConfig, version libcudnn_graph.so.9",
    "other-build": "RuntimeError: operator torchvision::nms does not exist",
    "other-torch": "ImportError: flash_attn.so: undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationE",
    "triton-missing": "RuntimeError: Cannot find a working triton installation.",
    "shm-small": "RuntimeError: unable to write to file </torch_123_456_0>: No space left on device (28)",
    "driver-library-mismatch": "Error 803: system has unsupported display driver / cuda driver combination",
    "fabric-manager": "CUDA initialization: Unexpected error. Error 802: system not yet initialized",
    "driver-missing": "ImportError: libcuda.so.1: cannot open shared object file: No such file or directory",
    "no-space": "OSError: [Errno 28] No space left on device",
    "driver-too-old": "The NVIDIA driver on your system is too old (found version 12020).",
    "no-code": "CUDA error: no kernel image is available for execution on the device",
}


@pytest.mark.parametrize("code", REPORTED)
def test_a_text_on_record_is_told_by_its_cause(code: str) -> None:
    (found,) = find_known_texts(f"Traceback\n  File x\n{REPORTED[code]}\n", "/env")
    assert isinstance(found, EnvironmentFinding)
    assert found.code == code
    assert found.cure
    assert "{" not in found.message.replace("${", "")


def test_every_known_text_has_one_on_record() -> None:
    assert {known.code for known in KNOWN} <= REPORTED.keys()
    assert list(find_known_texts("all is well", "/env")) == []


# What the import showed


def answer(report: Mapping[str, object]) -> Runner:
    """Return a runner in which the Python of any environment gives this report."""

    def run(command: Command, *, timeout: float | None = None) -> Completed:
        return Completed(command=command, code=0, out=json.dumps(report), err="")

    return run


def see(path: Path, host: Host, **report: object) -> list[str]:
    torch = {"version": "2.15.0+cu132", "cuda": "13.2", "hip": None, "file": str(path / "torch")}
    site = make_environment(path, version="2.15.0+cu132")
    torch["file"] = str(site / "torch" / "__init__.py")
    run = answer({"torch": torch, **report})
    return [f"{found.code}: {found.message}" for found in diagnose_by(path, host, run).findings]


def diagnose_by(path: Path, host: Host, run: Runner) -> Diagnosis:
    return diagnose(path, host, CATALOGUE, {}, run, machine=ROOMY)


def test_a_device_that_torch_does_not_see_though_nothing_explains_it(tmp_path: Path) -> None:
    assert see(tmp_path / "env", nvidia("610.10"), devices=[]) == [
        "device-unseen: torch sees no device, but this machine has NVIDIA GeForce RTX 4090"
    ]


def test_a_device_that_gives_a_wrong_result(tmp_path: Path) -> None:
    device = {"device": "cuda:0", "name": "NVIDIA GeForce RTX 4090", "computes": False, "error": None}
    assert see(tmp_path / "env", nvidia("610.10"), devices=[device]) == [
        "device-fails: NVIDIA GeForce RTX 4090 does not compute: the result differs from the CPU's"
    ]


def test_an_import_without_end_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "LIMIT", 0.5)
    make_environment(tmp_path / "env", torch="import time\ntime.sleep(60)\n")
    (found,) = examine(tmp_path / "env").findings
    assert (found.code, found.cure) == ("import-hangs", "python -X importtime -c 'import torch'")


def test_an_interpreter_that_gives_no_answer(tmp_path: Path) -> None:
    make_environment(tmp_path / "env")
    python = tmp_path / "env" / "bin" / "python"
    python.unlink()
    python.write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
    python.chmod(0o755)
    (found,) = examine(tmp_path / "env").findings
    assert (found.code, found.message) == ("interpreter-fails", "its Python did not answer: broken")


def test_the_libraries_of_the_driver_are_looked_for_where_distributions_put_them(tmp_path: Path) -> None:
    make_environment(tmp_path / "env")
    for name in ("usr/lib/wsl/lib/libcuda.so.1", "usr/lib/x86_64-linux-gnu/libcuda.so.550.54"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    facts = read_machine(describe(tmp_path / "env"), {}, root=tmp_path)
    assert [code for code, _ in of_machine(facts, replace(HOST, wsl=True))] == ["wsl-libcuda"]


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a file system of Linux")
def test_a_temporary_directory_that_is_full_and_runs_no_code_is_found_for_real(tmp_path: Path) -> None:
    make_environment(tmp_path / "env")
    small = tmp_path / "small"
    small.mkdir()
    options = ["-t", "tmpfs", "-o", "noexec,size=1m", "tmpfs", str(small)]
    mount = subprocess.run(["mount", *options], check=False, capture_output=True)
    if mount.returncode != 0:
        pytest.skip("this user may mount nothing")
    try:
        facts = read_machine(describe(tmp_path / "env"), {"TMPDIR": str(small)})
    finally:
        subprocess.run(["umount", str(small)], check=True)
    found = find_machine_causes(installation("2.15.0+cu132"), facts, HOST, {})
    assert {("noexec", str(small)), ("tmp-full", str(small))} <= {(item.code, item.path) for item in found}


@pytest.mark.parametrize("code", _CURES)
def test_what_the_probe_says_of_a_device_is_a_finding_with_its_cure(code: str) -> None:
    problem = Problem(code, "nvidia-smi", "as the probe says it")
    (found,) = find_device_causes(
        installation("2.15.0+cu132"), replace(HOST, problems=(problem,)), CATALOGUE, {}
    )
    assert (found.code, found.message, found.cure) == (code, "as the probe says it", _CURES[code])


def list_kinds() -> set[str]:
    """Return the code of every finding that the sources of the doctor make."""
    package = Path(torchenv.__file__).parent
    sources = (
        *package.joinpath("actions", "causes").glob("*.py"),
        package / "actions" / "doctor.py",
        package / "environment" / "findings.py",
    )
    made = re.compile(r'(?:EnvironmentFinding|KnownText)\(\s*"([a-z-]+)"|\bcode = "([a-z-]+)"')
    found = (match for path in sources for match in made.finditer(path.read_text("utf-8")))
    return {code for match in found for code in match.groups() if code}


def test_every_kind_of_finding_has_a_test() -> None:
    kinds = list_kinds()
    assert len(kinds) > 30
    tests = Path(__file__).parents[1]
    texts = [Path(__file__).read_text("utf-8")]
    texts += [path.read_text("utf-8") for path in (tests / "environment").glob("*.py")]
    tested = {code for text in texts for code in re.findall(r'"([a-z-]+)[":]', text)}
    assert kinds - tested == set()
