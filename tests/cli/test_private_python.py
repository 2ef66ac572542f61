"""Another user, from whom root's own Pythons and directories are hidden, gets answers and no traceback."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from torchenv.cli import DEFECT

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.getuid() != 0 or shutil.which("setpriv") is None,
    reason="only root can become another user",
)

SOURCE = Path(__file__).parents[2] / "src"
OTHER = ("setpriv", "--reuid=65533", "--regid=65533", "--clear-groups")


def find_open_python() -> str | None:
    """Return a Python that any user can start and that is as new as torchenv needs."""
    asked = "import sys; sys.exit(sys.version_info < (3, 11))"
    for name in ("/usr/bin/python3", "/usr/bin/python3.11", "/usr/bin/python3.12", "/usr/bin/python3.13"):
        if Path(name).exists() and not subprocess.run([*OTHER, name, "-c", asked], check=False).returncode:
            return name
    return None


@pytest.mark.parametrize("words", [("plan", "2.15", "--offline"), ("probe",), ("status",), ("sync",)])
def test_what_this_user_may_not_look_at_is_not_there(
    words: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory
) -> None:
    python = find_open_python()
    if python is None:
        pytest.skip("this machine has no Python that every user can start")
    # What is imported must lie where the other user may read it.
    place = Path("/tmp") / f"other-user-{os.getpid()}"
    hidden = tmp_path_factory.mktemp("hidden")
    try:
        shutil.copytree(SOURCE, place / "src", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(SOURCE.parent / "profiles", place / "profiles")
        (place / "project").mkdir()
        (place / "project" / "torchenv.toml").write_text('schema = 1\nname = "p"\n', "utf-8")
        os.chown(place / "project", 65533, 65533)
        private = hidden / "bin"
        private.mkdir()
        (private / "python").symlink_to(sys.executable)
        hidden.chmod(0o700)
        packages = Path(pytest.__file__).parents[1]
        environ = {
            "PATH": f"{private}:{hidden / 'shims'}:/usr/bin:/bin",
            "HOME": str(place / "project"),
            "PYTHONPATH": f"{place / 'src'}:{packages}",
            "VIRTUAL_ENV": str(hidden),
        }
        command = [*OTHER, python, "-m", "torchenv", *words]
        done = subprocess.run(
            command, cwd=place / "project", env=environ, text=True, capture_output=True, check=False
        )
    finally:
        shutil.rmtree(place)
    if "No module named" in done.stderr:
        pytest.skip("the packages of the tests are hidden from other users, too")
    assert "Traceback" not in done.stderr
    assert done.returncode != DEFECT, done.stderr
