"""A small made-up PyTorch index beside a small package index, with the traps of the real ones."""

from __future__ import annotations

from tests.support.index import Index
from tests.support.wheels import ORDINARY, PLATFORMS, PYTHONS, Wheel, torch_wheel

# release, its backends, its torchvision, its torchaudio, its triton
RELEASES = (
    (
        "2.14.1",
        ("cpu", "cu126", "cu130", "cu132", "rocm7.2", "rocm7.14", "xpu"),
        "0.29.1",
        "2.11.0",
        "3.8.0",
    ),
    (
        "2.15.0",
        ("cpu", "cu132", "cu134", "rocm7.14", "rocm10.0", "xpu"),
        "0.29.2",
        "2.11.1",
        "3.9.0",
    ),
)

_LINUX_ONLY = ('platform_system == "Linux"',)


def world() -> Index:
    """Every backend with its wheels for each platform and Python, and ordinary packages beside."""
    index = Index()
    for version, backends, torchvision, torchaudio, triton in RELEASES:
        for backend in backends:
            place = f"whl/{backend}"
            index.add(place, *_torch(version, backend, triton))
            label = f"+{backend}"
            index.add(
                place,
                *_companion("torchvision", torchvision + label, ("numpy", "torch>=2.14.0")),
                *_companion("torchaudio", torchaudio + label, ("torch",)),
            )
            index.add(place, *_libraries(backend, triton))
            index.add(place, *STALE)
    index.add("simple", *ORDINARY_PACKAGES)
    for version, _, torchvision, torchaudio, triton in RELEASES:
        index.add("simple", *_package_index_build(version, torchvision, torchaudio, triton))
    return index


# What PyTorch's index mirrors of other people's packages: old, and once even above the real one.
STALE = (
    Wheel(name="numpy", version="1.26.0"),
    Wheel(name="filelock", version="3.13.1"),
    Wheel(name="typing-extensions", version="99.0"),
    Wheel(name="nvidia-cudnn-cu13", version="9.26.0.51", files={"nvidia/cudnn/stale.py": ""}),
)

ORDINARY_PACKAGES = (
    Wheel(name="numpy", version="2.2.0", uploaded="2026-02-01"),
    Wheel(name="numpy", version="2.3.0", uploaded="2026-09-01"),
    Wheel(name="filelock", version="3.20.0"),
    Wheel(name="typing-extensions", version="4.15.0"),
    Wheel(name="lightning", version="2.5.0", requires=("torch>=2.1", "numpy", "filelock")),
    # Nobody's ROCM: it only shares the name.
    Wheel(name="rocm", version="99.0"),
    Wheel(name="nvidia-cudnn-cu12", version="9.10.2.21", files={"nvidia/cudnn/__init__.py": ""}),
    Wheel(name="nvidia-cudnn-cu13", version="9.24.0.43", files={"nvidia/cudnn/__init__.py": ""}),
    Wheel(name="nvidia-cudnn-cu13", version="9.26.0.51", files={"nvidia/cudnn/__init__.py": ""}),
    Wheel(name="xformers", version="0.0.40", requires=("torch==2.14.1",)),
)


def torch_requires(version: str, backend: str, triton: str) -> tuple[str, ...]:
    """What torch's METADATA of this build asks for."""
    linux = 'platform_system == "Linux"'
    if backend.startswith("cu"):
        major = backend[2:4]
        cudnn = {"12": "9.10.2.21", "13": "9.26.0.51" if version >= "2.15" else "9.24.0.43"}[major]
        return (
            *ORDINARY,
            f"nvidia-cudnn-cu{major}=={cudnn}; {linux}",
            f'triton~={triton}; {linux} and platform_machine == "x86_64"',
        )
    if backend.startswith("rocm"):
        number = backend.removeprefix("rocm")
        rocm = (f"rocm[libraries]=={number}.*",) if number != "7.2" else ()
        return (*ORDINARY, f"triton-rocm~={triton}; {linux}", *rocm)
    if backend == "xpu":
        return (*ORDINARY, f"triton-xpu~={triton}; {linux}")
    return ORDINARY


def _torch(version: str, backend: str, triton: str) -> list[Wheel]:
    return [
        torch_wheel(
            version,
            backend,
            python=python,
            platform=platform,
            requires=torch_requires(version, backend, triton),
        )
        for platform in _platforms(backend)
        for python in PYTHONS
        if not (python.startswith("cp310") and version >= "2.15")
    ]


def _platforms(backend: str) -> tuple[str, ...]:
    if backend.startswith("rocm"):
        return ("linux-x86_64",)
    if backend == "xpu":
        return ("linux-x86_64", "windows-x86_64")
    if backend == "cpu":
        return tuple(PLATFORMS)
    return ("linux-x86_64", "linux-aarch64", "windows-x86_64")


def _companion(name: str, version: str, requires: tuple[str, ...]) -> list[Wheel]:
    return [
        Wheel(name=name, version=version, tag=f"py3-none-{tag}", requires=requires)
        for tag in PLATFORMS.values()
    ]


def _libraries(backend: str, triton: str) -> list[Wheel]:
    tag = f"py3-none-{PLATFORMS['linux-x86_64']}"
    if backend.startswith("cu"):
        return [Wheel(name="triton", version=triton, tag=tag)]
    if backend == "xpu":
        return [Wheel(name="triton-xpu", version=triton, tag=tag)]
    if not backend.startswith("rocm"):
        return []
    wheels = [Wheel(name="triton-rocm", version=triton, tag=tag)]
    number = backend.removeprefix("rocm")
    if number != "7.2":
        libraries = f"rocm-sdk-libraries=={number}.0; extra == 'libraries'"
        wheels += [
            Wheel(name="rocm", version=f"{number}.0", requires=(libraries,), extras=("libraries",)),
            Wheel(name="rocm-sdk-libraries", version=f"{number}.0", tag=tag),
        ]
    return wheels


def _package_index_build(version: str, torchvision: str, torchaudio: str, triton: str) -> list[Wheel]:
    # There Linux has one CUDA build, the others the CPU's, and no name carries a label.
    backend = "cu132" if version >= "2.15" else "cu130"
    wheels = [
        torch_wheel(
            version,
            backend if platform.startswith("linux") else "cpu",
            label=None if platform.startswith(("linux", "windows")) else "",
            python=python,
            platform=platform,
            requires=torch_requires(version, backend, triton),
            on_package_index=True,
        )
        for platform in PLATFORMS
        for python in PYTHONS
        if not (python.startswith("cp310") and version >= "2.15")
    ]
    tag = f"py3-none-{PLATFORMS['linux-x86_64']}"
    wheels += [Wheel(name="triton", version=triton, tag=tag)]
    wheels += _companion("torchvision", torchvision, ("numpy", "torch>=2.14.0"))
    wheels += _companion("torchaudio", torchaudio, ("torch",))
    return wheels
