"""Programs are started in one place, in a clean environment, and none is left behind."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from torchenv.cli.interrupts import stoppable
from torchenv.errors import ToolFailed
from torchenv.system import process
from torchenv.system.process import (
    Command,
    Completed,
    End,
    Programs,
    list_ignored,
    scrub_environ,
    together,
)

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the programs are POSIX ones")

run = Programs({"PATH": os.environ["PATH"]})


def python(code: str, *arguments: str) -> Command:
    return Command((sys.executable, "-I", "-c", code, *arguments))


def test_a_command_can_be_pasted_into_a_shell() -> None:
    command = Command(
        ("uv", "pip", "sync", "a file.toml"), cwd=Path("/over there"), env={"NAME": "two words"}
    )
    assert str(command) == "cd '/over there' && NAME='two words' uv pip sync 'a file.toml'"


def test_what_a_command_reads_is_part_of_the_line() -> None:
    assert str(Command(("cat",), stdin="a b")) == "printf %s 'a b' | cat"


def test_a_command_gives_what_it_printed() -> None:
    done = run(python("import sys; print(sys.stdin.read()); print('aside', file=sys.stderr)"))
    assert (done.code, done.out, done.err, done.end) == (0, "\n", "aside\n", End.EXITED)
    assert run(Command(("cat",), stdin="ä in")).check("copy") == "ä in"


def test_a_failure_is_told_in_the_words_of_the_purpose() -> None:
    command = Command(("uv", "venv", "x"))
    done = Completed(command, 2, "", "error: first\n  no space left on device\n")
    with pytest.raises(ToolFailed) as caught:
        done.check("make the environment x")
    assert str(caught.value) == "could not make the environment x: no space left on device"
    assert caught.value.hint == "run `uv venv x` to see all of it"


def test_a_program_that_says_nothing_is_named_with_its_code() -> None:
    assert run(python("raise SystemExit(3)")).reason().endswith("ended with code 3")


def test_a_program_that_is_not_there_is_not_a_failure_of_the_program(tmp_path: Path) -> None:
    done = run(Command((str(tmp_path / "nvidia-smi"),)))
    assert (done.code, done.end) == (127, End.NOT_FOUND)
    assert done.reason() == f"program `{tmp_path}/nvidia-smi` not found"


def test_a_program_that_cannot_be_started_says_why(tmp_path: Path) -> None:
    broken = tmp_path / "python3"
    broken.write_bytes(b"\x7fELF")
    broken.chmod(0o755)
    done = run(Command((str(broken),)))
    assert (done.code, done.end) == (126, End.NOT_STARTED)
    assert done.reason().startswith("python3 cannot be started: [Errno 8] Exec format error")


GRANDPARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-I", "-c", "import time; time.sleep(60)"])
print(child.pid, flush=True)
open(sys.argv[1], "w").write(str(child.pid))
time.sleep(60)
"""


def test_out_of_time_means_the_whole_family_is_gone_and_what_it_said_is_kept(
    tmp_path: Path,
) -> None:
    done = run(python(GRANDPARENT, str(tmp_path / "pid")), timeout=1)
    assert (done.code, done.end) == (124, End.OUT_OF_TIME)
    assert done.reason().endswith("did not answer in time")
    assert_gone(int(done.out))


def test_a_grandchild_that_left_the_group_does_not_hold_up_the_end(tmp_path: Path) -> None:
    # As torchrun starts its workers: each in a session of its own, with the pipes of its parent.
    leaves = (
        "import subprocess, sys, time; print('began', flush=True);"
        " print('wörk', file=sys.stderr, flush=True);"
        " child = subprocess.Popen(['sleep', '30'], start_new_session=True);"
        " open(sys.argv[1], 'w').write(str(child.pid)); time.sleep(30)"
    )
    began = time.monotonic()
    done = run(python(leaves, str(tmp_path / "pid")), timeout=1)
    waited = time.monotonic() - began
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert (done.end, done.out, done.err) == (End.OUT_OF_TIME, "began\n", "wörk\n")
    # It would have been the thirty seconds of the grandchild.
    assert waited < 20


def test_a_program_that_a_signal_ended_is_named_with_it() -> None:
    die = "import os, sys; os.kill(os.getpid(), int(sys.argv[1]))"
    assert run(python(die, "9")).reason().endswith("was ended by SIGKILL")
    assert Completed(Command(("train",)), -40, "", "").reason() == "train was ended by signal 40"


def test_side_by_side_answers_keep_their_order_and_each_has_its_limit() -> None:
    slow = python("import time; time.sleep(60)")
    answers = together(run, [python("print(1)"), slow, python("print(3)")], timeout=2)
    assert [done.out for done in answers] == ["1\n", "", "3\n"]
    assert answers[1].end is End.OUT_OF_TIME
    assert together(run, []) == ()


def alone(command: Command) -> None:
    run(command)


def beside_another(command: Command) -> None:
    together(run, [command, python("import time; time.sleep(60)")], timeout=50)


@pytest.mark.parametrize("start", [alone, beside_another])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_torchenv_and_leaves_no_child(
    tmp_path: Path, start: Callable[[Command], None], number: signal.Signals
) -> None:
    note = tmp_path / "pid"
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            with stoppable():
                start(python(GRANDPARENT, str(note)))
        except KeyboardInterrupt:
            code = 130
        finally:
            os._exit(code)
    wait_for(lambda: note.exists() and note.read_text() != "")
    os.kill(pid, number)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
    assert_gone(int(note.read_text()))


def become(call: str) -> Completed:
    """Let a Python of its own become another program, since this one is still needed."""
    code = f"from torchenv.system.process import Command, become; become({call})"
    source = str(Path(__file__).parents[2] / "src")
    return run(Command((sys.executable, "-c", code), env={"PYTHONPATH": source}))


def test_becoming_a_program_gives_it_exactly_this_environment_and_ordinary_pipes() -> None:
    done = become(
        "Command(('sh', '-c', 'env | sort; yes | head -1'), env={'B': '2'}),"
        " {'A': '1', 'PATH': '/usr/bin:/bin'}"
    )
    lines = [line for line in done.out.splitlines() if not line.startswith(("PWD", "_", "SHLVL"))]
    assert (lines, done.err) == (["A=1", "B=2", "PATH=/usr/bin:/bin", "y"], "")


def test_becoming_a_program_that_is_not_there_says_so() -> None:
    said = become("Command(('/no/such/program',)), {}").reason()
    assert said.endswith("ToolFailed: could not start `/no/such/program`: No such file or directory")


def test_who_could_not_become_a_program_still_outlives_a_reader_that_hangs_up() -> None:
    numbers = (signal.SIGPIPE, signal.SIGXFSZ)
    before = [signal.getsignal(number) for number in numbers]
    with pytest.raises(ToolFailed, match="could not start"):
        process.become(Command(("/no/such/program",)), {})
    assert [signal.getsignal(number) for number in numbers] == before


INHERITED = {
    "CONDA_PREFIX": "/conda",
    "HOME": "/home/ada",
    "HTTPS_PROXY": "http://proxy.example:3128",
    "NETRC": "/home/ada/.netrc",
    "PATH": "/usr/bin",
    "PIP_CERT": "/etc/ours.pem",
    "PIP_EXTRA_INDEX_URL": "https://mirror.example/whl/cpu",
    "PIP_TARGET": "/elsewhere",
    "PYTHONPATH": "/mine",
    "UV_CACHE_DIR": "/big/disk",
    "UV_INDEX_URL": "",
    "UV_TORCH_BACKEND": "cpu",
    "VIRTUAL_ENV": "/home/ada/.venv",
}


def test_what_leads_astray_is_gone_and_the_way_to_the_network_stays() -> None:
    assert scrub_environ(INHERITED) == {
        "HOME": "/home/ada",
        "HTTPS_PROXY": "http://proxy.example:3128",
        "NETRC": "/home/ada/.netrc",
        "NO_COLOR": "1",
        "PATH": "/usr/bin",
        "PIP_CERT": "/etc/ours.pem",
        "PYTHONUTF8": "1",
        "SSL_CERT_FILE": "/etc/ours.pem",
        "UV_CACHE_DIR": "/big/disk",
    }


def test_a_certificate_that_uv_reads_already_is_not_replaced() -> None:
    environ = {"PIP_CERT": "/pip.pem", "SSL_CERT_DIR": "/certs"}
    assert "SSL_CERT_FILE" not in scrub_environ(environ)


def test_a_proxy_that_only_pip_knew_of_is_told_to_the_others() -> None:
    proxied = scrub_environ({"PIP_PROXY": "http://p.example", "https_proxy": "http://q.example"})
    assert proxied["HTTP_PROXY"] == "http://p.example"
    assert "HTTPS_PROXY" not in proxied


def test_the_settings_of_other_tools_are_listed_as_ignored() -> None:
    assert list_ignored(INHERITED) == (
        "PIP_EXTRA_INDEX_URL",
        "PIP_TARGET",
        "PYTHONPATH",
        "UV_TORCH_BACKEND",
    )


def assert_gone(pid: int) -> None:
    def gone() -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            pass
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False

    wait_for(gone)


def wait_for(happened: Callable[[], bool]) -> None:
    for _ in range(200):
        if happened():
            return
        time.sleep(0.05)
    pytest.fail("it did not happen within ten seconds")
