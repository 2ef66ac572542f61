"""Completion in shells: scripts made from the parsers, and the words that only this machine knows."""

from __future__ import annotations

from argparse import SUPPRESS, Action
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from torchenv.cli import COMMANDS
from torchenv.cli.options import add_general
from torchenv.cli.parser import Parser
from torchenv.errors import TorchenvError

if TYPE_CHECKING:
    from torchenv.cli.session import Session

# What a word is, by the name that the help gives it.
_KINDS = {
    "ENV": "environments",
    "B": "backends",
    "NAME|FILE": "profiles",
    "TARGET": "targets",
}
_FILES = {"FILE", "PATH", "DIR", "ROOT", "SRC", "DST", "SAVE"}


def list_words(kind: str, session: Session) -> tuple[str, ...]:
    """Return the words of a kind that this machine knows; none where they cannot be read."""
    try:
        match kind:
            case "environments":
                environments = session.store.read().environments
                return tuple(
                    word
                    for environment in environments
                    if environment.on_disk
                    for word in (str(environment.number), environment.name)
                )
            case "backends":
                return tuple(sorted(session.catalogue.tags))
            case "profiles":
                from torchenv.profile.packaged import list_profile_names

                return list_profile_names()
            case _:
                return tuple(target.name for target in session.profile.targets)
    except (OSError, TorchenvError):
        return ()


def make_parser_of_all() -> Parser:
    """Return one parser with every command below it."""
    from importlib import import_module

    parser = Parser(prog="torchenv", description="Choose, build, prove and roll back PyTorch environments.")
    parser.add_argument("--version", action="store_true", help="Print the version")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    for name, (module, says) in COMMANDS.items():
        command = commands.add_parser(name, help=says, description=f"{says}.")
        add_general(command)
        import_module(f"torchenv.cli.{module}").COMMANDS[name].declare(command)
    return parser


def write_completion(shell: str) -> str:
    """Write the script that teaches a shell the words of torchenv."""
    parser = make_parser_of_all()
    match shell:
        case "fish":
            return "\n".join(_write_fish(parser))
        case "powershell":
            return "\n".join(_write_powershell(parser))
        case _:
            return _write_by_shtab(parser, shell)


def _write_by_shtab(parser: Parser, shell: str) -> str:
    import shtab

    for _, actions in _walk(parser):
        for action in actions:
            if action.choices is None and (complete := _complete_by_shtab(action)):
                action.complete = complete  # type: ignore[attr-defined]
    return str(shtab.complete(parser, shell=shell, preamble=_PREAMBLES[shell]))


def _complete_by_shtab(action: Action) -> Mapping[str, Any] | None:
    import shtab

    kind = _find_kind(action)
    if kind is not None:
        return {"bash": f"_torchenv_{kind}", "zsh": f"_torchenv_{kind}"}
    return shtab.FILE if str(action.metavar) in _FILES else None


_ASK = "$(command torchenv completion --words {kind} 2>/dev/null)"
_BASH = "\n".join(
    f'_torchenv_{kind}() {{ compgen -W "{_ASK.format(kind=kind)}" -- "$1"; }}' for kind in _KINDS.values()
)
_ZSH = "\n".join(
    f'_torchenv_{kind}() {{ compadd -- ${{(f)"{_ASK.format(kind=kind)}"}} }}' for kind in _KINDS.values()
)
_PREAMBLES = {"bash": _BASH, "zsh": _ZSH}


def _find_kind(action: Action) -> str | None:
    named = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    return _KINDS.get(named)


def _walk(parser: Parser, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], list[Action]]]:
    """Yield the words that lead to each parser, with what it takes there."""
    yield words, [action for action in parser._actions if action.help != SUPPRESS]  # noqa: SLF001 - argparse has no other list
    for action in parser._actions:  # noqa: SLF001
        if isinstance(action.choices, dict):
            for name, below in action.choices.items():
                if isinstance(below, Parser):
                    yield from _walk(below, (*words, name))


def _write_fish(parser: Parser) -> Iterator[str]:
    """Yield the lines of fish's completion: one for each word and option, with its help."""
    yield "complete -c torchenv -f"
    for words, actions in _walk(parser):
        seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in words)
        known = " ".join(_list_commands(actions))
        condition = seen or "__fish_use_subcommand"
        if words and known:
            condition = f"{seen}; and not __fish_seen_subcommand_from {known}"
        for action in actions:
            yield from _write_fish_action(action, condition)


def _write_fish_action(action: Action, condition: str) -> Iterator[str]:
    when = f"complete -c torchenv -n {_quote(condition)}"
    says = f" -d {_quote(action.help)}" if action.help else ""
    values = _write_fish_values(action)
    if isinstance(action.choices, dict):
        # The lines of help of what comes below.
        helps = {one.dest: one.help for one in action._get_subactions()}  # type: ignore[attr-defined]  # noqa: SLF001
        for name in action.choices:
            yield f"{when} -a {name} -d {_quote(helps.get(name) or '')}"
    elif action.option_strings:
        names = " ".join(
            f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in action.option_strings
        )
        yield f"{when} {names}{says}{f' -r{values}' if action.nargs != 0 else ''}"
    elif values:
        yield f"{when}{values}"


def _write_fish_values(action: Action) -> str:
    if action.choices is not None:
        return f" -a {_quote(' '.join(map(str, action.choices)))}"
    kind = _find_kind(action)
    if kind is not None:
        return f" -a {_quote(f'(command torchenv completion --words {kind} 2>/dev/null)')}"
    return " -F" if str(action.metavar) in _FILES else ""


def _write_powershell(parser: Parser) -> Iterator[str]:
    """Yield PowerShell's completion: a table of words, and a block that looks into it."""
    yield "Register-ArgumentCompleter -Native -CommandName torchenv -ScriptBlock {"
    yield "    param($wordToComplete, $commandAst, $cursorPosition)"
    yield "    $table = @{"
    kinds: list[tuple[str, str]] = []
    for words, actions in _walk(parser):
        key = " ".join(words)
        options = [option for action in actions for option in action.option_strings]
        known = [*_list_commands(actions), *options]
        yield f"        {_quote(key)} = @({', '.join(map(_quote, known))})"
        for action in actions:
            if (kind := _find_kind(action)) is not None:
                names = action.option_strings or [""]
                kinds += [(f"{key} {name}".strip(), kind) for name in names]
    yield "    }"
    yield "    $kinds = @{"
    yield from (f"        {_quote(key)} = {_quote(kind)}" for key, kind in dict(kinds).items())
    yield "    }"
    yield from _POWERSHELL.strip("\n").splitlines()
    yield "}"


_POWERSHELL = """
    $words = @($commandAst.CommandElements | Select-Object -Skip 1 | ForEach-Object { "$_" })
    if ($wordToComplete -and $words.Count -gt 0) { $words = @($words | Select-Object -SkipLast 1) }
    $key = ''
    foreach ($word in $words) {
        $longer = "$key $word".Trim()
        if ($table.ContainsKey($longer)) { $key = $longer }
    }
    $last = if ($words.Count -gt 0) { $words[-1] } else { '' }
    $kind = $kinds["$key $last".Trim()]
    if (-not $kind -and -not $wordToComplete.StartsWith('-')) { $kind = $kinds[$key] }
    $found = if ($kind) { @(torchenv completion --words $kind) } else { @() }
    @($table[$key]) + $found | Where-Object { $_ -like "$wordToComplete*" } |
        ForEach-Object { [System.Management.Automation.CompletionResult]::new($_) }
"""


def _list_commands(actions: Iterable[Action]) -> list[str]:
    return [name for action in actions if isinstance(action.choices, dict) for name in action.choices]


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
