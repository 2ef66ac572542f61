"""Which files of a folder are audited, and that many processes find what one does."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchenv.actions.audit import audit
from torchenv.audit import Breakages, Unread, read_breakages
from torchenv.catalogue import resources
from torchenv.errors import InputError

RELOAD = "import importlib, torch\nimportlib.reload(torch)\n"


@pytest.fixture(scope="module")
def breakages() -> Breakages:
    return read_breakages(resources.section("audit"), resources.catalogue())[0]


def write(folder: Path, name: str, text: str = RELOAD) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_a_folder_is_read_in_the_order_of_its_names(tmp_path: Path, breakages: Breakages) -> None:
    names = ["b.py", "a.py", "deep/er/c.py", "notes.rst", "data.bin"]
    for name in names:
        write(tmp_path, name)
    report = audit([tmp_path], [breakages])
    found = [Path(finding.path).relative_to(tmp_path).as_posix() for finding in report.findings]
    assert found == ["a.py", "b.py", "deep/er/c.py"]
    assert report.files == 4


def test_what_is_not_the_users_own_is_passed_over(tmp_path: Path, breakages: Breakages) -> None:
    for name in ["env/lib/a.py", ".hidden/a.py", "__pycache__/a.py", "node_modules/a.py"]:
        write(tmp_path, name)
    write(tmp_path, "env/pyvenv.cfg", "")
    write(tmp_path, ".github/workflows/test.yml", "runs-on: macos-14\n")
    report = audit([tmp_path], [breakages])
    assert [finding.rule for finding in report.findings] == ["mps-floor"]
    named = audit([tmp_path / "env"], [breakages])
    assert [finding.rule for finding in named.findings] == ["torch-reload"]


def test_a_link_to_a_folder_is_not_followed(tmp_path: Path, breakages: Breakages) -> None:
    write(tmp_path, "code/a.py")
    (tmp_path / "code" / "again").symlink_to(tmp_path / "code")
    assert len(audit([tmp_path], [breakages]).findings) == 1


def test_a_path_that_is_named_twice_is_read_once(tmp_path: Path, breakages: Breakages) -> None:
    path = write(tmp_path, "a.py")
    assert audit([path, tmp_path, path], [breakages]).files == 1


def test_a_path_that_is_not_there_is_refused(tmp_path: Path, breakages: Breakages) -> None:
    with pytest.raises(InputError) as error:
        audit([tmp_path / "a.py"], [breakages])
    assert error.value.message == f"`{tmp_path}/a.py` does not exist"


def test_a_file_that_no_rule_reads_is_refused_by_name(tmp_path: Path, breakages: Breakages) -> None:
    path = write(tmp_path, "weights.bin")
    with pytest.raises(InputError) as error:
        audit([path], [breakages])
    assert error.value.message == f"`{path}` is not a kind of file that the audit reads"


def test_a_file_that_cannot_be_judged_is_in_the_report(tmp_path: Path, breakages: Breakages) -> None:
    path = write(tmp_path, "a.py", RELOAD + "(")
    why = "not Python: line 3: '(' was never closed"
    assert audit([tmp_path], [breakages]).unread == (Unread(path.as_posix(), why),)


def test_what_cannot_be_judged_is_not_counted_as_read(tmp_path: Path, breakages: Breakages) -> None:
    write(tmp_path, "src/a.py", RELOAD + "(")
    write(tmp_path, "src/b.py", "x = 1\n")
    some = audit([tmp_path / "src"], [breakages])
    assert (some.files, len(some.unread), some.is_blind) == (1, 1, False)
    (tmp_path / "src/b.py").unlink()
    none = audit([tmp_path / "src"], [breakages])
    assert (none.files, len(none.unread), none.is_blind) == (0, 1, True)


def test_in_a_walked_folder_a_broken_project_file_is_named_and_code_without_a_word_of_the_rules_is_not(
    tmp_path: Path, breakages: Breakages
) -> None:
    write(tmp_path, "broken.py", "x = (\n")
    broken = write(tmp_path, "pyproject.toml", "[tool\n")
    report = audit([tmp_path], [breakages])
    assert (report.files, [file.path for file in report.unread], report.is_blind) == (
        1,
        [broken.as_posix()],
        False,
    )


@pytest.mark.parametrize("text", [RELOAD + "(", "x = (\n"], ids=["names torch", "does not"])
def test_a_named_file_that_cannot_be_judged_is_no_pass(
    tmp_path: Path, breakages: Breakages, text: str
) -> None:
    good, bad = write(tmp_path, "good.py"), write(tmp_path, "bad.py", text)
    report = audit([good, bad], [breakages])
    assert (report.files, [file.path for file in report.unread]) == (1, [bad.as_posix()])
    assert report.is_blind


def test_many_processes_find_what_one_does(tmp_path: Path, breakages: Breakages) -> None:
    for number in range(450):
        write(tmp_path, f"{number % 7}/{number}.py", RELOAD if number % 50 == 0 else "")
    write(tmp_path, "bad.py", RELOAD + "(")
    alone = audit([tmp_path], [breakages], workers=1)
    assert len(alone.findings) == 9
    assert audit([tmp_path], [breakages], workers=2) == alone


def test_a_link_that_leads_to_itself_is_no_file(tmp_path: Path, breakages: Breakages) -> None:
    write(tmp_path, "a.py")
    (tmp_path / "loop.py").symlink_to(tmp_path / "loop.py")
    assert audit([tmp_path], [breakages]).files == 1
    with pytest.raises(InputError, match="does not exist"):
        audit([tmp_path / "loop.py"], [breakages])
