"""Write docs/reference/ and the man page from the parsers, the profile's model and the errors.

    python scripts/reference.py

What cannot be read from the code is said here, beside its name. A name without words, or words without a
name, is an error. A test holds that the files are what this writes.
"""

from __future__ import annotations

import json
import re
from argparse import SUPPRESS, Action, ArgumentParser
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torchenv import __version__
from torchenv.cli import COMMANDS, DEFECT, INTERRUPTED, make_parser
from torchenv.cli.options import add_general
from torchenv.errors import TorchenvError

# The generator reads what the code keeps to itself, so that no second list has to be kept true.
from torchenv.index.http import _CERTIFICATES
from torchenv.profile.model import _SECTIONS, _TARGET_KEYS, INSTALLERS, LINK_MODES, PREFERENCES
from torchenv.system.process import _CHOOSES, _SAYS_ONLY_HOW

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "torchenv"
MADE = "<!-- Written by scripts/reference.py: change the code or that script, then run it. -->"


class Setting(NamedTuple):
    """A key of a profile: an example of its value, its default and what it is for."""

    example: str
    default: str
    says: str


TOP = {
    "schema": Setting("1", "required", "Version of this format"),
    "name": Setting(
        '"our-training"', '`"default"`', "Name of the profile: lower-case letters, digits, hyphens"
    ),
}

SETTINGS: Mapping[str, Mapping[str, Setting]] = {
    "torch": {
        "version": Setting('"2.15"', '`"latest"`', "A version, a line (`2.15`), a range or `latest`"),
        "packages": Setting('["torchvision"]', "none", "Packages of torch's family to install with it"),
    },
    "python": {
        "version": Setting('"3.12"', "by the active environment", "Version or path of the interpreter"),
        "free-threaded": Setting("false", "`false`", "Use a free-threaded interpreter (`3.14t`)"),
    },
    "backend": {
        "only": Setting('["cu132", "cu126"]', "any", "Backends that may be chosen"),
        "prefer": Setting('"default"', '`"default"`', f"{' or '.join(f'`{word}`' for word in PREFERENCES)}"),
        "devices": Setting("[0, 1]", '`"all"`', "Devices to consider"),
        "accept-cpu": Setting("false", "`false`", "Go on even if an accelerator stays unused"),
    },
    "packages": {
        "requirements": Setting('["lightning>=2.5"]', "none", "Requirements to install beside torch"),
        "constraints": Setting('["numpy<3"]', "none", "Limits on versions; installs nothing by itself"),
        "from": Setting('["requirements.txt"]', "none", "Files that list requirements"),
        "editable": Setting('["."]', "none", "Projects to install in editable mode"),
        "exclude-newer": Setting("2026-11-01", "none", "Ignore packages uploaded after this date"),
    },
    "index": {
        "torch": Setting(
            '"https://mirror.example/whl"',
            "PyTorch's index",
            "Mirror of PyTorch's index: its root, an address with `{backend}`, or a table with one address"
            " for each backend",
        ),
        "packages": Setting(
            '"https://mirror.example/simple"', "the default package index", "Mirror of the package index"
        ),
        "private": Setting(
            '[{ url = "https://corp.example/simple", packages = ["corp-*"] }]',
            "none",
            "Indexes of your own; `packages` are the names that come from there and from nowhere else",
        ),
    },
    "install": {
        "installer": Setting('"uv"', '`"uv"`', f"{' or '.join(f'`{word}`' for word in INSTALLERS)}"),
        "link-mode": Setting('"auto"', '`"auto"`', f"{', '.join(f'`{word}`' for word in LINK_MODES)}"),
    },
    "checkpoints": {
        "roots": Setting('["runs"]', "none", "Directories or addresses to scan for checkpoints"),
        "distributed": Setting("true", "`false`", "This project saves distributed checkpoints"),
        "lifeboat-max-age": Setting(
            '"7d"', "none", "How old the newest checkpoint that the old torch reads may be: `12h`, `7d`, `2w`"
        ),
        "write-for": Setting('"2.14"', "none", "Write distributed checkpoints that this torch reads"),
    },
    "smoke": {
        "commands": Setting('[["python", "smoke.py"]]', "none", "Commands that `torchenv smoke` runs"),
        "required": Setting("true", "`false`", "Refuse to switch to an environment that has not passed them"),
        "timeout": Setting("600", "`600`", "Seconds that each command may take"),
    },
    "evaluation": {
        "commands": Setting('[["python", "eval.py"]]', "none", "Commands that measure a model"),
        "metrics": Setting(
            '{ loss = { better = "lower", relative = 0.01, absolute = 1e-6 } }',
            "all must be equal",
            "For each metric: `better` (`lower`, `higher` or `equal`), and how much worse it may get, as a"
            " share (`relative`) or a number (`absolute`)",
        ),
        "repeat": Setting("3", "`1`", "How often the commands run in each environment"),
        "timeout": Setting("3600", "`3600`", "Seconds that each command may take"),
    },
}

TARGET = {
    "name": Setting('"ada"', "required", "Name of the target"),
    "platform": Setting('"linux-x86_64"', "required", "System and processor"),
    "python": Setting('"3.12"', "required", "Minor version of the interpreter: `3.12`, `3.14t`"),
    "backend": Setting('"cu132"', "by the device", "Backend to lock"),
    "capability": Setting('"8.9"', "none", "Compute capability (`8.9`) or AMD architecture (`gfx1100`)"),
    "torch": Setting('"2.15"', "`[torch] version`", "Version of torch on this target"),
    "index": Setting('"torch"', '`"torch"`', "`torch` (PyTorch's index) or `packages` (the package index)"),
    "packages": Setting('["triton-kernels"]', "none", "Requirements on this target alone"),
    "extras": Setting('["train"]', "none", "Extras of the project's `pyproject.toml`"),
    "groups": Setting('["dev"]', "none", "Dependency groups of the project's `pyproject.toml`"),
    "from": Setting('["ada.txt"]', "none", "Files that list requirements for this target alone"),
}

VARIABLES = {
    "TORCHENV_HOME": "Workspace to use, as `--root` (default: `.torchenv` in the project)",
    "TORCHENV_PROFILE": "Name or file of the profile, as `--profile`",
    "TORCHENV_CATALOGUE": "Catalogue of your own, laid over the packaged one, as `--catalogue`",
    "TORCHENV_INSTALLER": "Installer to use, as `--installer`: `uv` or `pip`",
    "TORCHENV_TORCH_INDEX": "Mirror of PyTorch's index: its root (`{root}/{backend}` is asked), or an address"
    " that holds `{backend}`",
    "TORCHENV_PACKAGE_INDEX": "Mirror of the default package index",
    "TORCHENV_METRICS": "Set by `torchenv evaluate` for its commands: a file they may write metrics to",
}

# What torchenv sets for the Python it starts, and reads there again; nobody else sets them.
INTERNAL = {"TORCHENV_HOOK", "TORCHENV_WRITE_FOR", "TORCHENV_WRITE_FOR_TESTED", "TORCHENV_WRITTEN"}

OTHER_TOOLS = {
    "`HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`": "Proxies, in lower case too",
    ", ".join(f"`{name}`" for name in _CERTIFICATES): "Certificates; the first one that is set counts",
    "`SSL_CLIENT_CERT`": "Certificate of the client",
    "`NETRC`": "File of logins, in place of `~/.netrc`",
    "`CUDA_VISIBLE_DEVICES`, `CUDA_DEVICE_ORDER`": "Which NVIDIA devices are considered, and their numbers",
    "`ROCR_VISIBLE_DEVICES`, `HIP_VISIBLE_DEVICES`": "Which AMD devices are considered",
    "`HSA_OVERRIDE_GFX_VERSION`": "AMD architecture to pretend; trusted only with `--accept-override`",
    "`VIRTUAL_ENV`, `CONDA_PREFIX`, `CONDA_DEFAULT_ENV`": "Environment that is active in this shell",
    "`SHELL`": "Shell that `torchenv activate` prints for",
    "`NO_COLOR`, `TERM=dumb`, `COLUMNS`": "Colour and width of the output",
    "`JUPYTER_DATA_DIR`, `XDG_DATA_HOME`": "Where `torchenv kernel install` writes",
}

EXIT_CODES = {
    0: "Done",
    1: "A check found something: `verify`, `doctor`, `lock --check`, `audit`, `checkpoints verify`,"
    " `checkpoints gate`, `upgrade --check` that says not now, `rollback --with-checkpoints` that switched"
    " and could not copy the newest save of every run; or a smoke command or an evaluation failed",
    2: "The input is wrong: an option, a profile, a host file, a catalogue or a lock file",
    3: "Nothing suits this machine, or only a choice that you must make; or the record does not allow it: no"
    " environment is active, it was removed, it was made elsewhere and is only read, a rollback needs it",
    4: "A tool or a service failed: uv, pip, an index, an interpreter; or a smoke command could not start",
    5: "The workspace is not as its manifest says (files are gone, damaged or replaced), cannot be written,"
    " is not trusted yet, or is held by another run for 60 s or by a process that runs from an environment",
    70: "A defect in torchenv: please report it",
    130: "Interrupted (Ctrl-C)",
}


def write_documents() -> dict[str, str]:
    """Return the text of every generated file by its path from the top of the repository."""
    return {
        "docs/reference/commands.md": write_commands(),
        "docs/reference/profile.md": write_profile(),
        "docs/reference/variables.md": write_variables(),
        "docs/reference/exit-codes.md": write_exit_codes(),
        "docs/reference/documents.md": write_json_documents(),
        "docs/torchenv.1": write_man_page(),
    }


def write_commands() -> str:
    """Return the reference of every command, subcommand and option."""
    general = ArgumentParser(add_help=False)
    add_general(general)
    lines = ["# Commands", "", MADE, "", "Every command takes, beside its own options:", ""]
    shared = [*map(_describe, list_actions(general)), ("`-h`, `--help`", "Show the help of the command")]
    lines += [*_make_table("option", shared), ""]
    lines += ["`torchenv help COMMAND` is the same as `torchenv COMMAND --help`.", ""]
    lines += ["`torchenv version` and `torchenv --version` print the version.", ""]
    for prog, says, parser in list_parsers():
        lines += [f"{'#' * len(prog.split())} {prog}", "", f"{says}.", ""]
        lines += ["```text", write_usage(prog, parser), "```", ""]
        if rows := [_describe(action) for action in list_own_actions(parser)]:
            lines += [*_make_table("argument", rows), ""]
    return _join(lines)


def write_profile() -> str:
    """Return the reference of `torchenv.toml`; raises `ValueError` where a key lacks words."""
    for section, keys in {**_SECTIONS, "target": _TARGET_KEYS}.items():
        described = TARGET if section == "target" else SETTINGS.get(section, {})
        if odd := keys ^ described.keys():
            raise ValueError(f"scripts/reference.py and the profile disagree on [{section}] {sorted(odd)}")
    lines = [
        "# `torchenv.toml`",
        "",
        MADE,
        "",
        "A profile says what is wanted and nothing of one machine. `torchenv init` writes one for a project;",
        "the same keys are in the profiles that come with torchenv. Only `schema` is required; a key that is",
        "not listed here is an error. An option beats a variable, which beats the profile.",
        "",
        *_make_table("key", _describe_settings(TOP), "default"),
    ]
    for section, settings in SETTINGS.items():
        lines += ["", f"## `[{section}]`", "", *_make_table("key", _describe_settings(settings), "default")]
    lines += [
        "",
        "## `[[target]]`",
        "",
        "A kind of machine that `torchenv lock` locks for, one table each.",
        "",
    ]
    lines += _make_table("key", _describe_settings(TARGET), "default")
    lines += ["", "## All of it", "", "```toml", *write_example(), "```"]
    return _join(lines)


def write_example() -> list[str]:
    """Return a `torchenv.toml` that has every key."""
    lines = [f"{key} = {setting.example}" for key, setting in TOP.items()]
    for section, settings in SETTINGS.items():
        lines += ["", f"[{section}]", *(f"{key} = {setting.example}" for key, setting in settings.items())]
    return [*lines, "", "[[target]]", *(f"{key} = {setting.example}" for key, setting in TARGET.items())]


def write_variables() -> str:
    """Return the reference of the variables; raises `ValueError` where one lacks words."""
    named = {name for path in SOURCE.rglob("*.py") for name in _find_variables(path.read_text("utf-8"))}
    if odd := (named - INTERNAL) ^ VARIABLES.keys():
        raise ValueError(f"scripts/reference.py and the code disagree on {sorted(odd)}")
    kept = [*sorted(f"`{name}`" for name in _SAYS_ONLY_HOW)]
    lines = [
        "# Variables",
        "",
        MADE,
        "",
        "An option beats a variable, a variable beats the profile, the profile beats the default.",
        "",
        *_make_table("variable", ((f"`{name}`", says) for name, says in VARIABLES.items())),
        "",
        "## Variables of other tools",
        "",
        *_make_table("variable", OTHER_TOOLS.items()),
        "",
        "These settings of pip and uv are kept: they say how to reach an index, or where there is space.",
        "",
        *_wrap(", ".join(kept) + "."),
        "",
        "All others that begin with " + ", ".join(f"`{name}`" for name in _CHOOSES) + ", and the",
        "configuration files of pip and uv, do not choose packages here. Those found are listed as ignored.",
        "The logins in `UV_INDEX`, `PIP_INDEX_URL` and the like are used for the same host.",
    ]
    return _join(lines)


def write_exit_codes() -> str:
    """Return the reference of the exit codes; raises `ValueError` where one lacks words."""
    raised = {0, 1, DEFECT, INTERRUPTED, *(kind.exit_code for kind in _list_errors(TorchenvError))}
    if odd := raised ^ EXIT_CODES.keys():
        raise ValueError(f"scripts/reference.py and the code disagree on the exit codes {sorted(odd)}")
    lines = ["# Exit codes", "", MADE, ""]
    lines += _make_table("code", ((str(code), says) for code, says in EXIT_CODES.items()))
    lines += [
        "",
        "`torchenv run` ends with the exit code of the command that it ran.",
        "",
        "With `--json`, a failure prints one document on stdout, with the same code:",
        "",
        "```json",
        '{"schema": "torchenv.error/1", "code": 2, "message": "environment `9` not found", "hint": "…"}',
        "```",
        "",
        "A plan that is blocked (exit code 3) prints its plan document.",
    ]
    return _join(lines)


def write_json_documents() -> str:
    """Return the reference of the documents that `--json` prints, from their schemas."""
    lines = ["# JSON documents", "", MADE, ""]
    lines += [
        "With `--json` a command prints exactly one document on stdout. Keys may be added; a key that is"
    ]
    lines += ["renamed or dropped gets a new number. `?` marks a key that may be missing.", ""]
    for path in sorted((ROOT / "docs" / "schemas").glob("*.json")):
        schema = json.loads(path.read_text("utf-8"))
        lines += [f"## `{schema['$id']}`", "", f"{schema['title']}. [Schema](../schemas/{path.name})", ""]
        rows = ((f"`{key}`", kind, says) for key, kind, says in _list_keys(schema) if key != "schema")
        lines += [*_make_table("key", rows, "type"), ""]
    return _join(lines)


def write_man_page() -> str:
    """Return the manual page in the macros of `man`."""
    lines = [
        '.\\" Written by scripts/reference.py: change the code or that script, then run it.',
        f'.TH TORCHENV 1 "" "torchenv {__version__}" "User Commands"',
        ".SH NAME",
        r"torchenv \- choose, build, prove and roll back PyTorch environments",
        ".SH SYNOPSIS",
        r".B torchenv",
        r"\fICOMMAND\fR [\fIOPTIONS\fR]",
        ".SH DESCRIPTION",
        "torchenv reads the hardware of a machine, chooses the PyTorch release and the index that serve it,",
        "builds a new environment beside the active one, proves it, and rolls back with one command.",
        "It reads checkpoints without running them, and knows which environment can read which.",
        ".SH COMMANDS",
    ]
    for prog, says, parser in list_parsers():
        lines += [".SS " + _quote(write_usage(prog, parser)), _roff(f"{says}.")]
        for words, text in map(_describe, list_own_actions(parser)):
            lines += [".TP", _bold(words), _roff(text)]
    lines += [".SH ENVIRONMENT"]
    for name, text in VARIABLES.items():
        lines += [".TP", _bold(name), _roff(f"{text}.")]
    lines += [".SH EXIT STATUS"]
    for code, text in EXIT_CODES.items():
        lines += [".TP", _bold(str(code)), _roff(f"{text}.")]
    lines += [".SH FILES"]
    for name, text in {
        "torchenv.toml": "The profile of a project.",
        ".torchenv/": "The workspace of a project: environments, lock files and the manifest.",
        ".torchenv/manifest.toml": "The one record of what exists and what is active.",
    }.items():
        lines += [".TP", _bold(name), _roff(text)]
    return _join(lines)


def list_parsers() -> Iterator[tuple[str, str, ArgumentParser]]:
    """Yield every command and subcommand as it is typed, its line of help and its parser."""
    for name, (_, says) in COMMANDS.items():
        parser, _ = make_parser(name)
        yield f"torchenv {name}", says, parser
        for action in list_actions(parser):
            if isinstance(action.choices, dict):
                # argparse keeps the help of subcommands apart from their parsers.
                words = {sub.dest: sub.help or "" for sub in vars(action)["_choices_actions"]}
                for sub, below in action.choices.items():
                    yield f"torchenv {name} {sub}", words[sub], below


def list_actions(parser: ArgumentParser) -> list[Action]:
    """Return the arguments and options that a parser shows."""
    return [action for action in parser._actions if action.help != SUPPRESS]  # noqa: SLF001


def list_own_actions(parser: ArgumentParser) -> list[Action]:
    """Return them without the subcommands and what every command takes."""
    general = {"-h", "--root", "-q", "-v"}
    return [
        action
        for action in list_actions(parser)
        if not general & set(action.option_strings) and not isinstance(action.choices, dict)
    ]


def write_usage(prog: str, parser: ArgumentParser) -> str:
    """Write the command with its arguments; options are named only where they are required."""
    shapes = {None: "{0}", "?": "[{0}]", "*": "[{0} ...]", "+": "{0} [{0} ...]", "...": "-- {0} ..."}
    words = [prog]
    own = list_actions(parser)
    words += [
        f"{action.option_strings[-1]} {_name_value(action)}"
        for action in own
        if action.option_strings and action.required
    ]
    if any(action.option_strings and not action.required for action in own):
        words.append("[OPTIONS]")
    for action in own:
        if isinstance(action.choices, dict):
            words.append("ACTION")
        elif not action.option_strings:
            shape = shapes[None if action.nargs is None else str(action.nargs)]
            words.append(shape.format(_name_value(action)))
    return " ".join(words)


def _describe(action: Action) -> tuple[str, str]:
    if not action.option_strings:
        return f"`{_name_value(action)}`", action.help or ""
    value = "" if action.nargs == 0 else f" {_name_value(action)}"
    if action.nargs == "?":
        value = f" [{value.strip()}]"
    elif action.nargs == "+":
        value += " ..."
    names = [*action.option_strings[:-1], action.option_strings[-1] + value]
    return ", ".join(f"`{name}`" for name in names), action.help or ""


def _name_value(action: Action) -> str:
    if isinstance(action.metavar, str):
        return action.metavar
    if action.choices is not None:
        return "{" + ",".join(map(str, action.choices)) + "}"
    return action.dest.upper()


def _describe_settings(settings: Mapping[str, Setting]) -> Iterator[tuple[str, ...]]:
    return ((f"`{key}`", setting.default, setting.says) for key, setting in settings.items())


def _make_table(first: str, rows: Iterable[tuple[str, ...]], *more: str) -> list[str]:
    heads = (first, *more, "meaning")
    made = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return [*made, *("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)]


def _list_keys(schema: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield the keys of an object and of those in it, with their types and what is said of them."""
    for key, inner in schema.get("properties", {}).items():
        name = f"{above}{key}{'' if key in schema.get('required', ()) else '?'}"
        yield name, _name_type(inner), inner.get("description", "")
        for below in (inner, *inner.get("anyOf", ())):
            yield from _list_keys(below, f"{name}.")
            yield from _list_keys(below.get("items", {}), f"{name}[].")


def _name_type(schema: Mapping[str, Any]) -> str:
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(map(_name_type, schema["anyOf"]))
    kind = schema.get("type", "any")
    return " or ".join(kind) if isinstance(kind, list) else kind


def _find_variables(text: str) -> set[str]:
    return set(re.findall(r"(?<![A-Z_])TORCHENV_[A-Z_]*[A-Z]", text))


def _list_errors(kind: type[TorchenvError]) -> Iterator[type[TorchenvError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _list_errors(below)


def _wrap(text: str, width: int = 110) -> list[str]:
    from textwrap import wrap

    return wrap(text, width, break_long_words=False, break_on_hyphens=False)


def _roff(text: str) -> str:
    """Write a line so that troff takes nothing of it for a request."""
    plain = text.replace("\\", "\\e").replace("`", "").replace("-", "\\-")
    return f"\\&{plain}" if plain.startswith((".", "'")) else plain


def _bold(text: str) -> str:
    return f"\\fB{_roff(text)}\\fR"


def _quote(text: str) -> str:
    return '"' + _roff(text).replace('"', '""') + '"'


def _join(lines: list[str]) -> str:
    return "\n".join(lines).rstrip("\n") + "\n"


def main() -> None:
    """Write the files below the repository."""
    for name, text in write_documents().items():
        path = ROOT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
