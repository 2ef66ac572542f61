"""What a shell evaluates in order to be in an environment, and to leave it again with `deactivate`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping

from torchenv.actions.run import ProgramEntry


def script(entry: ProgramEntry, shell: str) -> str:
    """Write the lines for one of `SHELLS`; they leave an environment that the shell is in first."""
    return SHELLS[shell](entry)


def _posix(entry: ProgramEntry) -> str:
    changed = [*entry.set, *entry.unset]
    lines = [
        "if typeset -f deactivate >/dev/null 2>&1; then deactivate; fi",
        '_TORCHENV_PATH="$PATH"',
        *(f'_TORCHENV_HAD_{name}="${{{name}+yes}}"; _TORCHENV_OLD_{name}="${{{name}-}}"' for name in changed),
        f'export PATH={shlex.quote(str(entry.scripts))}:"$PATH"',
        *(f"export {name}={shlex.quote(value)}" for name, value in entry.set.items()),
        *(f"unset {name}" for name in entry.unset),
        "deactivate() {",
        '    export PATH="$_TORCHENV_PATH"',
        *(f"    {line}" for name in changed for line in _restore_in_posix(name)),
        "    unset _TORCHENV_PATH",
        "    unset -f deactivate",
        "    hash -r 2>/dev/null",
        "}",
        "hash -r 2>/dev/null",
    ]
    return "\n".join(lines)


def _restore_in_posix(name: str) -> tuple[str, str]:
    had, old = f"_TORCHENV_HAD_{name}", f"_TORCHENV_OLD_{name}"
    return (
        f'if [ -n "${had}" ]; then export {name}="${old}"; else unset {name}; fi',
        f"unset {had} {old}",
    )


def _fish(entry: ProgramEntry) -> str:
    changed = [*entry.set, *entry.unset]
    lines = [
        "if functions -q deactivate; deactivate; end",
        "set -g _TORCHENV_PATH $PATH",
        *(f"if set -q {name}; set -g _TORCHENV_OLD_{name} ${name}; end" for name in changed),
        f"set -gx PATH {_quote_for_fish(str(entry.scripts))} $PATH",
        *(f"set -gx {name} {_quote_for_fish(value)}" for name, value in entry.set.items()),
        *(f"set -e {name}" for name in entry.unset),
        "function deactivate",
        "    set -gx PATH $_TORCHENV_PATH",
        *(f"    {line}" for name in changed for line in _restore_in_fish(name)),
        "    set -e _TORCHENV_PATH",
        "    functions -e deactivate",
        "end",
    ]
    return "\n".join(lines)


def _restore_in_fish(name: str) -> tuple[str, str]:
    old = f"_TORCHENV_OLD_{name}"
    return f"set -e {name}", f"if set -q {old}; set -gx {name} ${old}; set -e {old}; end"


def _quote_for_fish(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _powershell(entry: ProgramEntry) -> str:
    changed = [*entry.set, *entry.unset]
    names = ", ".join(map(_quote_for_powershell, ["PATH", *changed]))
    lines = [
        "if (Test-Path function:deactivate) { deactivate }",
        "$global:_TORCHENV_OLD = @{}",
        f"foreach ($name in {names}) {{",
        "    $global:_TORCHENV_OLD[$name] = [Environment]::GetEnvironmentVariable($name)",
        "}",
        f"$env:PATH = {_quote_for_powershell(str(entry.scripts))} + [IO.Path]::PathSeparator + $env:PATH",
        *(f"$env:{name} = {_quote_for_powershell(value)}" for name, value in entry.set.items()),
        *(f"Remove-Item -ErrorAction SilentlyContinue env:{name}" for name in entry.unset),
        "function global:deactivate {",
        "    foreach ($entry in $global:_TORCHENV_OLD.GetEnumerator()) {",
        "        [Environment]::SetEnvironmentVariable($entry.Key, $entry.Value)",
        "    }",
        "    Remove-Variable -Scope Global _TORCHENV_OLD",
        "    Remove-Item function:deactivate",
        "}",
    ]
    return "\n".join(lines)


def _quote_for_powershell(text: str) -> str:
    escaped = text.replace("'", "''")
    return f"'{escaped}'"


SHELLS: Mapping[str, Callable[[ProgramEntry], str]] = {
    "bash": _posix,
    "zsh": _posix,
    "fish": _fish,
    "powershell": _powershell,
}
