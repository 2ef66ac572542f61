"""What uv builds, and from which index it takes a package, with whose login."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.index import Index
from tests.support.wheels import Sdist, Wheel
from tests.support.workshop import MINOR

from torchenv.errors import IndexFailed, NothingSuits, ToolFailed, Unobtainable
from torchenv.index.http import Network, NotLetIn
from torchenv.index.logins import Logins
from torchenv.index.pages import fetcher
from torchenv.installers import LockRequest
from torchenv.installers.pip import Pip
from torchenv.installers.uv import Uv, uv_program
from torchenv.lockfile.lock import Lock
from torchenv.profile.model import PrivateIndex
from torchenv.system.addresses import Login, host_of
from torchenv.system.process import Command, Completed, Programs

Ask = Callable[..., LockRequest]

builds_here = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="the wheels are for Linux x86_64"
)


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    return tmp_path / "ran"


@pytest.fixture
def sources(index: Index, ran: Path) -> Index:
    """Let one package have no wheel, and another an older one."""
    index.add("simple", Sdist(name="sourced", version="1.0", files={"ran": str(ran)}))
    index.add("simple", Sdist(name="halfway", version="2.0", files={"ran": str(ran)}))
    index.add("simple", Wheel(name="halfway", version="1.0"))
    return index


# Sources.


def test_that_code_of_a_package_runs_is_said_before_it_does(
    environ: dict[str, str], request_for: Ask, sources: Index, ran: Path
) -> None:
    said: list[tuple[str, bool]] = []
    uv = Uv(Programs(environ), program=uv_program(), say=lambda text: said.append((text, ran.exists())))
    lock = uv.lock(request_for(packages=("sourced",)))
    assert lock.versions["sourced"] == "1.0"
    assert ran.read_text() == "ran"
    lacks = f"sourced has no wheel for Python {MINOR} on linux-x86_64"
    assert said == [(f"note: {lacks}: building from source, which runs code of the package", False)]


def test_only_wheels_means_that_nothing_is_built(
    environ: dict[str, str], request_for: Ask, sources: Index, ran: Path
) -> None:
    uv = Uv(Programs(environ), program=uv_program(), only_wheels=True)
    with pytest.raises(Unobtainable) as caught:
        uv.lock(request_for(packages=("sourced",)))
    assert str(caught.value) == (
        f"sourced has no wheel for Python {MINOR} on linux-x86_64, and --only-wheels was given"
    )
    assert not ran.exists()


def test_a_dry_run_builds_nothing_and_opens_no_folder_or_repository(
    environ: dict[str, str], request_for: Ask, sources: Index, ran: Path, tmp_path: Path
) -> None:
    said: list[str] = []
    uv = Uv(Programs(environ), program=uv_program(), say=said.append)
    with pytest.raises(Unobtainable, match="and a dry run builds nothing"):
        uv.lock(request_for(packages=("sourced",), builds=False))
    mine = f"mine @ {tmp_path.as_uri()}/mine"
    lock = uv.lock(request_for(packages=(mine, "b @ git+https://host.example/b", "numpy"), builds=False))
    assert "numpy" in lock.versions
    assert said == [
        "note: mine is left out: a dry run opens no folder and no repository",
        "note: b is left out: a dry run opens no folder and no repository",
    ]
    assert not ran.exists()


def test_where_a_wheel_will_do_nothing_is_built(uv: Uv, request_for: Ask, sources: Index, ran: Path) -> None:
    assert uv.lock(request_for(packages=("halfway",))).versions["halfway"] == "1.0"
    assert not ran.exists()


# Indexes of one's own.


@pytest.fixture
def corporate(index: Index) -> PrivateIndex:
    """Let a private index hold two packages, and the public one newer ones by the same names."""
    index.add("private", Wheel(name="corp-train", version="1.0", requires=("corp-base", "numpy")))
    index.add("private", Wheel(name="corp-base", version="1.0"), Wheel(name="numpy", version="99.0"))
    index.add("simple", Wheel(name="corp-train", version="66.6"), Wheel(name="corp-base", version="66.6"))
    return PrivateIndex(f"{index.root}/private", ("corp-*",))


def test_names_that_are_bound_come_from_their_index_alone(
    uv: Uv, request_for: Ask, corporate: PrivateIndex, index: Index
) -> None:
    lock = uv.lock(request_for(packages=("corp-train",), private=(corporate,)))
    found = {package.name: (package.version, package.index) for package in lock.packages}
    assert found["corp-train"] == ("1.0", corporate.url)
    assert found["corp-base"] == ("1.0", corporate.url)
    assert found["numpy"] == ("2.3.0", index.packages)
    assert found["torch"][1] == index.backend("cu132")


def test_a_bound_name_is_never_taken_from_elsewhere(
    uv: Uv, request_for: Ask, corporate: PrivateIndex, index: Index
) -> None:
    index.remove("private", "corp-base")
    with pytest.raises((ToolFailed, NothingSuits)) as caught:
        uv.lock(request_for(packages=("corp-train",), private=(corporate,)))
    assert str(caught.value) == f"{corporate.url} has no corp-base"


def test_a_survey_that_an_index_did_not_answer_is_said_to_have_failed(
    environ: dict[str, str], request_for: Ask, corporate: PrivateIndex, index: Index
) -> None:
    programs, surveys = Programs(environ), []
    index.remove("simple", "corp-base")

    def fail_survey(command: Command, *, timeout: float | None = None) -> Completed:
        # To look through the indexes, they are all asked alike.
        if "unsafe-best-match" not in str(command):
            return programs(command, timeout=timeout)
        surveys.append(command)
        said = f"error: Request failed after 3 retries\n  cause: Failed to fetch: `{index.packages}/numpy/`\n"
        said += "  cause: error sending request\n  cause: operation timed out\n"
        return Completed(command, 2, "", said)

    uv = Uv(fail_survey, program=uv_program())
    with pytest.raises(IndexFailed) as caught:
        uv.lock(request_for(packages=("corp-train",), private=(corporate,)))
    assert len(surveys) == 1
    assert index.packages in caught.value.message
    assert "has no" not in caught.value.message


# Logins.

TOKEN = "s3cret@x"


@builds_here
def test_a_login_opens_the_indexes_for_lock_and_install_and_is_in_no_file(
    environ: dict[str, str], request_for: Ask, corporate: PrivateIndex, index: Index, tmp_path: Path
) -> None:
    index.login = ("user", TOKEN)
    request = request_for(packages=("corp-train",), private=(corporate,))
    with pytest.raises(NotLetIn, match=r"asks for a login \(401 Unauthorized\)"):
        Uv(Programs(environ), program=uv_program(), fetch=fetcher(Network())).lock(request)

    logins = Logins(given={host_of(index.root): Login("user", TOKEN)})
    uv = Uv(Programs(environ), program=uv_program(), logins=logins)
    lock = uv.lock(request)
    assert TOKEN not in lock.text
    for name, installer in (("uv", uv), ("pip", Pip(Programs(environ), locker=uv, logins=logins))):
        assert fill(installer, lock, tmp_path / name).is_file()


@builds_here
def test_keyring_is_asked_where_an_index_refuses_uv(
    environ: dict[str, str], request_for: Ask, index: Index, tmp_path: Path
) -> None:
    index.login = ("user", TOKEN)

    def keyring(command: Command, *, timeout: float | None = None) -> Completed:
        return Completed(command, 0, f"user\n{TOKEN}\n", "")

    logins = Logins(run=keyring)
    uv = Uv(Programs(environ), program=uv_program(), logins=logins, fetch=fetcher(Network(logins=logins)))
    lock = uv.lock(request_for())
    fresh = Uv(Programs(environ), program=uv_program(), logins=Logins(run=keyring))
    assert fill(fresh, lock, tmp_path / "env").is_file()


def test_the_default_entry_of_netrc_is_kept_from_uv(
    environ: dict[str, str], request_for: Ask, index: Index, tmp_path: Path
) -> None:
    index.login = ("user", TOKEN)
    netrc = tmp_path / "netrc"
    netrc.write_text(f"default login user password {TOKEN}\n", "utf-8")
    programs = Programs({**environ, "NETRC": str(netrc)})
    with pytest.raises(Unobtainable):
        Uv(programs, program=uv_program(), logins=Logins(netrc=netrc)).lock(request_for())
    named = Logins(netrc=netrc, named=frozenset({host_of(index.root)}))
    assert "torch" in Uv(programs, program=uv_program(), logins=named).lock(request_for()).versions


def test_a_time_limit_of_the_users_own_is_kept() -> None:
    show = Command(
        (sys.executable, "-c", "import os; print(os.environ['UV_HTTP_TIMEOUT'])"),
        defaults={"UV_HTTP_TIMEOUT": "10"},
    )
    assert Programs({}).__call__(show).out.strip() == "10"
    assert Programs({"UV_HTTP_TIMEOUT": "300"}).__call__(show).out.strip() == "300"
    assert Programs({"UV_REQUEST_TIMEOUT": "400"}).__call__(show).out.strip() == "400"


def fill(installer: Uv | Pip, lock: Lock, environment: Path) -> Path:
    written = environment.with_name(f"pylock.{environment.name}.toml")
    written.write_text(lock.text, "utf-8")
    installer.create(environment, Path(sys.executable))
    installer.install(environment, written)
    (found,) = environment.glob("lib/python*/site-packages/torch/__init__.py")
    return found
