"""What a shell evaluates in order to be in an environment, and to leave it again with `deactivate`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping

from torchenv.actions.run import ProgramEntry
from torchenv.system.looking import find_paths

# What a prompt shows as it is in every shell; other marks are not set.
_MARK = re.compile(r"[A-Za-z0-9._+-]+")

_NO_PIP = "this environment has no pip"
_ADD, _LIST = "add packages with `torchenv add", "see what it holds with `torchenv show --json`"


def script(entry: ProgramEntry, shell: str, mark: str = "") -> str:
    """Write the lines for one of `SHELLS`; they leave an environment that the shell is in first.

    `mark` is put before the prompt, unless VIRTUAL_ENV_DISABLE_PROMPT is set. Where the environment has no
    pip, the shell gets one that says what to do, in place of another installation's.
    """
    mark = mark if _MARK.fullmatch(mark) else ""
    return SHELLS[shell](entry, mark, has_pip=bool(find_paths(entry.scripts, "pip*")))


def hook(shell: str) -> str:
    """Write for one of `SHELLS` the function by which `torchenv activate` and `deactivate` act on it."""
    return _HOOKS[shell].strip()


_HOOKS = {
    "bash": """
torchenv() {
    case " $* " in
        *" -h "* | *" --help "*) command torchenv "$@"; return ;;
    esac
    case "${1-}" in
        activate)
            shift
            _torchenv_lines="$(command torchenv activate --shell bash "$@")" || return
            eval "$_torchenv_lines"
            unset _torchenv_lines
            ;;
        deactivate)
            if typeset -f deactivate >/dev/null 2>&1; then
                deactivate
            else
                echo "error: no environment is activated in this shell" >&2
                return 2
            fi
            ;;
        *) command torchenv "$@" ;;
    esac
}
""",
    "fish": """
function torchenv
    switch "$argv[1]"
        case activate
            if contains -- --help $argv; or contains -- -h $argv
                command torchenv $argv
                return
            end
            set -l lines (command torchenv activate --shell fish $argv[2..-1] | string collect)
            if test $pipestatus[1] -ne 0
                return 1
            end
            printf '%s' $lines | source
        case deactivate
            if functions -q deactivate
                deactivate
            else
                echo "error: no environment is activated in this shell" >&2
                return 2
            end
        case '*'
            command torchenv $argv
    end
end
""",
    "powershell": """
function global:torchenv {
    $program = (Get-Command -CommandType Application torchenv | Select-Object -First 1).Source
    $first = if ($args.Count -gt 0) { $args[0] } else { '' }
    $asks = $args -contains '--help' -or $args -contains '-h'
    if ($first -eq 'activate' -and -not $asks) {
        $rest = @($args | Select-Object -Skip 1)
        $lines = & $program activate --shell powershell @rest | Out-String
        if ($LASTEXITCODE -eq 0) { Invoke-Expression $lines }
    } elseif ($first -eq 'deactivate' -and -not $asks) {
        if (Test-Path function:deactivate) { deactivate }
        else { [Console]::Error.WriteLine('error: no environment is activated in this shell') }
    } else {
        & $program @args
    }
}
""",
}
_HOOKS["zsh"] = _HOOKS["bash"].replace("--shell bash", "--shell zsh")


def _posix(entry: ProgramEntry, mark: str, *, has_pip: bool) -> str:
    changed = [*entry.set, *entry.unset]
    lines = [
        "if typeset -f deactivate >/dev/null 2>&1; then deactivate; fi",
        '_TORCHENV_PATH="$PATH"',
        *(f'_TORCHENV_HAD_{name}="${{{name}+yes}}"; _TORCHENV_OLD_{name}="${{{name}-}}"' for name in changed),
        f'export PATH={shlex.quote(str(entry.scripts))}:"$PATH"',
        *(f"export {name}={shlex.quote(value)}" for name, value in entry.set.items()),
        *(f"unset {name}" for name in entry.unset),
        *(_mark_in_posix(mark) if mark else ()),
        *(() if has_pip else _POSIX_PIP),
        "deactivate() {",
        '    export PATH="$_TORCHENV_PATH"',
        *(f"    {line}" for name in changed for line in _restore_in_posix(name)),
        '    if [ -n "${_TORCHENV_PS1+x}" ]; then PS1="$_TORCHENV_PS1"; unset _TORCHENV_PS1; fi',
        *(() if has_pip else ("    unset -f pip",)),
        "    unset _TORCHENV_PATH",
        "    unset -f deactivate",
        "    hash -r 2>/dev/null",
        "}",
        "hash -r 2>/dev/null",
    ]
    return "\n".join(lines)


# `pip install -U wandb` is answered with the command that adds wandb.
_POSIX_PIP = (
    "pip() {",
    "    _TORCHENV_WORDS=",
    '    for _TORCHENV_WORD in "$@"; do',
    '        case "$_TORCHENV_WORD" in',
    "            install | -*) ;;",
    '            *) _TORCHENV_WORDS="$_TORCHENV_WORDS $_TORCHENV_WORD" ;;',
    "        esac",
    "    done",
    '    if [ "${1-}" = install ]; then',
    f"        printf '%s\\n' \"{_NO_PIP}; {_ADD.replace('`', chr(92) + '`')}$_TORCHENV_WORDS\\`\" >&2",
    "    else",
    f"        printf '%s\\n' {shlex.quote(f'{_NO_PIP}; {_LIST}')} >&2",
    "    fi",
    "    unset _TORCHENV_WORDS _TORCHENV_WORD",
    "    return 2",
    "}",
)
_FISH_PIP = (
    "function pip",
    '    if test "$argv[1]" = install',
    f"        echo \"{_NO_PIP}; {_ADD} \"(string join ' ' (string match -v -- '-*' $argv[2..-1]))'`' >&2",
    "    else",
    f"        echo '{_NO_PIP}; {_LIST}' >&2",
    "    end",
    "    return 2",
    "end",
)
_POWERSHELL_PIP = (
    "function global:pip {",
    "    if ($args.Count -and $args[0] -eq 'install') {",
    "        $words = @($args | Select-Object -Skip 1 | Where-Object { $_ -notlike '-*' }) -join ' '",
    f"        Write-Error ('{_NO_PIP}; {_ADD} ' + $words + '`')",
    "    } else {",
    f"        Write-Error '{_NO_PIP}; {_LIST}'",
    "    }",
    "}",
)


def _mark_in_posix(mark: str) -> tuple[str, ...]:
    return (
        'if [ -z "${VIRTUAL_ENV_DISABLE_PROMPT-}" ] && [ -n "${PS1+x}" ]; then',
        f'    _TORCHENV_PS1="$PS1"; PS1="({mark}) $PS1"',
        "fi",
    )


def _restore_in_posix(name: str) -> tuple[str, str]:
    had, old = f"_TORCHENV_HAD_{name}", f"_TORCHENV_OLD_{name}"
    return (
        f'if [ -n "${had}" ]; then export {name}="${old}"; else unset {name}; fi',
        f"unset {had} {old}",
    )


def _fish(entry: ProgramEntry, mark: str, *, has_pip: bool) -> str:
    changed = [*entry.set, *entry.unset]
    lines = [
        "if functions -q deactivate; deactivate; end",
        "set -g _TORCHENV_PATH $PATH",
        *(f"if set -q {name}; set -g _TORCHENV_OLD_{name} ${name}; end" for name in changed),
        f"set -gx PATH {_quote_for_fish(str(entry.scripts))} $PATH",
        *(f"set -gx {name} {_quote_for_fish(value)}" for name, value in entry.set.items()),
        *(f"set -e {name}" for name in entry.unset),
        *(_mark_in_fish(mark) if mark else ()),
        *(() if has_pip else _FISH_PIP),
        "function deactivate",
        "    set -gx PATH $_TORCHENV_PATH",
        *(f"    {line}" for name in changed for line in _restore_in_fish(name)),
        "    if functions -q _torchenv_fish_prompt",
        "        functions -e fish_prompt; functions -c _torchenv_fish_prompt fish_prompt",
        "        functions -e _torchenv_fish_prompt",
        "    end",
        *(() if has_pip else ("    functions -e pip",)),
        "    set -e _TORCHENV_PATH",
        "    functions -e deactivate",
        "end",
    ]
    return "\n".join(lines)


def _mark_in_fish(mark: str) -> tuple[str, ...]:
    return (
        "if not set -q VIRTUAL_ENV_DISABLE_PROMPT; and functions -q fish_prompt",
        "    functions -c fish_prompt _torchenv_fish_prompt",
        f"    function fish_prompt; printf '(%s) ' {mark}; _torchenv_fish_prompt; end",
        "end",
    )


def _restore_in_fish(name: str) -> tuple[str, str]:
    old = f"_TORCHENV_OLD_{name}"
    return f"set -e {name}", f"if set -q {old}; set -gx {name} ${old}; set -e {old}; end"


def _quote_for_fish(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _powershell(entry: ProgramEntry, mark: str, *, has_pip: bool) -> str:
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
        *(_mark_in_powershell(mark) if mark else ()),
        *(() if has_pip else _POWERSHELL_PIP),
        "function global:deactivate {",
        "    foreach ($entry in $global:_TORCHENV_OLD.GetEnumerator()) {",
        "        [Environment]::SetEnvironmentVariable($entry.Key, $entry.Value)",
        "    }",
        "    Remove-Variable -Scope Global _TORCHENV_OLD",
        "    if (Test-Path function:_torchenv_prompt) {",
        "        Copy-Item function:_torchenv_prompt function:global:prompt",
        "        Remove-Item function:_torchenv_prompt",
        "    }",
        *(() if has_pip else ("    Remove-Item function:pip",)),
        "    Remove-Item function:deactivate",
        "}",
    ]
    return "\n".join(lines)


def _mark_in_powershell(mark: str) -> tuple[str, ...]:
    return (
        "if (-not $env:VIRTUAL_ENV_DISABLE_PROMPT -and (Test-Path function:prompt)) {",
        "    Copy-Item function:prompt function:global:_torchenv_prompt",
        f"    function global:prompt {{ '({mark}) ' + (_torchenv_prompt) }}",
        "}",
    )


def _quote_for_powershell(text: str) -> str:
    escaped = text.replace("'", "''")
    return f"'{escaped}'"


SHELLS: Mapping[str, Callable[..., str]] = {
    "bash": _posix,
    "zsh": _posix,
    "fish": _fish,
    "powershell": _powershell,
}
