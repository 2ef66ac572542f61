"""Other tools' settings are found and named; what opens the network is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchenv.installers.inherited import Constraint, Inherited, pip_files, read_inherited, uv_files

HOME = Path("/home/ada")

FILES = {
    "/etc/xdg/pip/pip.conf": "[global]\nconstraint = /etc/xdg/pip/constraints.txt\ntimeout = 60\n",
    "/etc/xdg/pip/constraints.txt": "# held back\ntorch<=2.14.1  # until the driver is new\n\nnumpy<3\n",
    "/etc/pip.conf": "[global]\ncert = /etc/ours.pem\nproxy = http://proxy.example:3128\n",
    "/home/ada/.config/pip/pip.conf": (
        "[install]\nfind-links = /opt/wheels\n[global]\nextra-index-url = https://mirror.example/simple\n"
    ),
    "/home/ada/.config/uv/uv.toml": (
        'constraint-dependencies = ["torch!=2.15.0"]\n[pip]\ntorch-backend = "cpu"\n'
    ),
}


def read(path: Path) -> str:
    try:
        return FILES[path.as_posix()]
    except KeyError:
        raise FileNotFoundError(path) from None


def found(environ: dict[str, str]) -> Inherited:
    return read_inherited(environ, read, system="linux", home=HOME)


def test_settings_that_steer_are_named_with_their_place() -> None:
    assert found({"PIP_EXTRA_INDEX_URL": "https://mirror.example/whl/cpu"}).ignored == (
        "PIP_EXTRA_INDEX_URL",
        "constraint in /etc/xdg/pip/pip.conf",
        "extra-index-url in /home/ada/.config/pip/pip.conf",
        "find-links in /home/ada/.config/pip/pip.conf",
        "constraint-dependencies in /home/ada/.config/uv/uv.toml",
        "pip.torch-backend in /home/ada/.config/uv/uv.toml",
    )


def test_certificates_and_proxies_of_pips_files_are_kept() -> None:
    assert found({}).network == {
        "PIP_CERT": "/etc/ours.pem",
        "PIP_PROXY": "http://proxy.example:3128",
    }


def test_a_constraint_that_forbids_the_plan_is_named_with_its_file() -> None:
    forbidding = found({}).forbidding(("torch==2.15.0+cu132", "numpy==2.3.0"))
    assert [str(constraint) for constraint in forbidding] == [
        "torch<=2.14.1 (/etc/xdg/pip/constraints.txt)",
        "torch!=2.15.0 (/home/ada/.config/uv/uv.toml)",
    ]
    assert found({}).forbidding(("torch==2.14.1+cu126",)) == ()


def test_a_constraint_named_by_a_variable_counts_too() -> None:
    environ = {"PIP_CONSTRAINT": "/etc/xdg/pip/constraints.txt"}
    assert found(environ).constraints[0] == Constraint("/etc/xdg/pip/constraints.txt", "torch<=2.14.1")


def test_settings_that_cannot_be_read_are_none() -> None:
    def broken(path: Path) -> str:
        return "no = [toml and no ini" if path.suffix == ".toml" else "no section\n"

    nothing = read_inherited({}, broken, system="linux", home=HOME)
    assert nothing == Inherited((), (), {})


@pytest.mark.parametrize(
    ("system", "environ", "expected"),
    [
        (
            "linux",
            {"XDG_CONFIG_DIRS": "/a:/b", "PIP_CONFIG_FILE": "/mine.conf"},
            [
                "/a/pip/pip.conf",
                "/b/pip/pip.conf",
                "/etc/pip.conf",
                "/home/ada/.pip/pip.conf",
                "/home/ada/.config/pip/pip.conf",
                "/mine.conf",
            ],
        ),
        (
            "darwin",
            {},
            [
                "/Library/Application Support/pip/pip.conf",
                "/home/ada/.pip/pip.conf",
                "/home/ada/.config/pip/pip.conf",
                "/home/ada/Library/Application Support/pip/pip.conf",
            ],
        ),
        (
            "win32",
            {"PROGRAMDATA": "C:/ProgramData", "APPDATA": "C:/Users/ada/AppData/Roaming"},
            [
                "C:/ProgramData/pip/pip.ini",
                "/home/ada/pip/pip.ini",
                "C:/Users/ada/AppData/Roaming/pip/pip.ini",
            ],
        ),
    ],
)
def test_pips_files_are_looked_for_where_pip_looks(
    system: str, environ: dict[str, str], expected: list[str]
) -> None:
    assert [file.as_posix() for file in pip_files(environ, system=system, home=HOME)] == expected


def test_uvs_files_are_looked_for_where_uv_looks() -> None:
    paths = uv_files({"UV_CONFIG_FILE": "/mine.toml"}, system="linux", home=HOME)
    assert [path.as_posix() for path in paths] == [
        "/etc/xdg/uv/uv.toml",
        "/etc/uv/uv.toml",
        "/home/ada/.config/uv/uv.toml",
        "/mine.toml",
    ]
