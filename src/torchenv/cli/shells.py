"""`activate`, `hook`, `completion`, `kernel`: an environment in a shell and in Jupyter."""

from __future__ import annotations

from argparse import SUPPRESS, RawDescriptionHelpFormatter
from pathlib import PurePath
from typing import NamedTuple

from torchenv.cli.gather import find_environment
from torchenv.cli.options import add_environment
from torchenv.cli.parser import CommandSpec, Parser, reader
from torchenv.cli.session import Session

HOW = """\
bash, zsh:   eval "$(torchenv activate)"
fish:        torchenv activate --shell fish | source
PowerShell:  torchenv activate --shell powershell | Out-String | Invoke-Expression

Leave it with `deactivate`. Or let `torchenv activate` act on the shell: see `torchenv hook --help`."""

HOOKED = """\
bash:        echo 'eval "$(torchenv hook bash)"' >> ~/.bashrc
zsh:         echo 'eval "$(torchenv hook zsh)"' >> ~/.zshrc
fish:        echo 'torchenv hook fish | source' >> ~/.config/fish/config.fish
PowerShell:  Add-Content $PROFILE 'torchenv hook powershell | Out-String | Invoke-Expression'

Then `torchenv activate [ENV]` and `torchenv deactivate` act on the shell itself."""

COMPLETED = """\
bash:        torchenv completion bash > ~/.local/share/bash-completion/completions/torchenv
zsh:         torchenv completion zsh > DIR/_torchenv, where DIR is in $fpath
fish:        torchenv completion fish > ~/.config/fish/completions/torchenv.fish
PowerShell:  Add-Content $PROFILE 'torchenv completion powershell | Out-String | Invoke-Expression'"""


class ActivateFlags(NamedTuple):
    """What `activate` takes."""

    environment: str | None
    shell: str | None


def declare_activate(parser: Parser) -> None:
    """Declare what `activate` takes."""
    from torchenv.actions.activate import SHELLS

    parser.epilog = HOW
    parser.formatter_class = RawDescriptionHelpFormatter
    add_environment(parser)
    parser.add_argument("--shell", choices=tuple(SHELLS), help="Shell to print for (default: yours)")


def activate(flags: ActivateFlags, session: Session) -> int:
    """Print the lines; nothing is changed."""
    from torchenv.actions.activate import script
    from torchenv.actions.run import entry

    environ = session.settings.environ
    environment = find_environment(flags.environment, session)
    shell = flags.shell or _find_shell(session)
    mark = environment.name.partition("-py")[0]
    session.output.print(script(entry(environment, session.store, environ), shell, mark))
    return 0


def _find_shell(session: Session) -> str:
    """Return the shell that will read what is printed: the one that started torchenv, else SHELL's."""
    from torchenv.actions.activate import SHELLS
    from torchenv.system.processes import name_parent

    environ = session.settings.environ
    parent = name_parent(session.settings.system, lambda: session.programs)
    names = {"sh": "bash", "dash": "bash", "ash": "bash", "ksh": "bash", "pwsh": "powershell"}
    for named in (parent, environ.get("SHELL", "")):
        # -bash is a login shell; SHELL=/usr/bin/fish
        name = PurePath(named or "").name.lstrip("-").removesuffix(".exe")
        if (shell := names.get(name, name)) in SHELLS:
            return shell
    return "powershell" if session.settings.system == "win32" else "bash"


class HookFlags(NamedTuple):
    """What `hook` takes."""

    shell: str


def declare_hook(parser: Parser) -> None:
    """Declare what `hook` takes."""
    from torchenv.actions.activate import SHELLS

    parser.epilog = HOOKED
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.add_argument("shell", choices=tuple(SHELLS), help="Shell to print for")


def hook(flags: HookFlags, session: Session) -> int:
    """Print the function; nothing is changed."""
    from torchenv.actions.activate import hook as write_hook

    session.output.print(write_hook(flags.shell))
    return 0


class CompletionFlags(NamedTuple):
    """What `completion` takes; `words` asks for words of a kind in place of a script."""

    shell: str | None
    words: str | None


def declare_completion(parser: Parser) -> None:
    """Declare what `completion` takes."""
    from torchenv.actions.activate import SHELLS

    parser.epilog = COMPLETED
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.add_argument("shell", nargs="?", choices=tuple(SHELLS), help="Shell to print for (default: yours)")
    # The scripts ask for what only this machine knows.
    parser.add_argument("--words", help=SUPPRESS)


def complete(flags: CompletionFlags, session: Session) -> int:
    """Print the script, or the words that it asks for."""
    from torchenv.cli.completion import list_words, write_completion

    if flags.words is not None:
        session.output.print("\n".join(list_words(flags.words, session)))
    else:
        session.output.print(write_completion(flags.shell or _find_shell(session)))
    return 0


class KernelFlags(NamedTuple):
    """What `kernel` takes."""

    what: str
    environment: str | None


def declare_kernel(parser: Parser) -> None:
    """Declare what `kernel` takes."""
    parser.add_argument(
        "what", metavar="{install,remove}", choices=("install", "remove"), help="Write or delete the kernel"
    )
    add_environment(parser)


def kernel(flags: KernelFlags, session: Session) -> int:
    """Write or delete the kernel, and print its name."""
    from torchenv.actions.kernel import install_kernel, jupyter_data, remove_kernel
    from torchenv.system.disk import Disk

    settings, removing = session.settings, flags.what == "remove"
    environment = find_environment(flags.environment, session, removed=removing)
    data = jupyter_data(settings.environ, settings.home or settings.cwd, settings.system)
    if removing:
        found = remove_kernel(environment, data, Disk())
        session.output.say("kernel removed; environment unchanged")
    else:
        found = install_kernel(environment, session.store, data, Disk())
        session.output.say(f"installed environment {environment} as a kernel: {found.directory}")
    session.output.print(found.name)
    return 0


COMMANDS = {
    "hook": CommandSpec(declare_hook, reader(HookFlags), hook),
    "completion": CommandSpec(declare_completion, reader(CompletionFlags), complete),
    "activate": CommandSpec(declare_activate, reader(ActivateFlags), activate),
    "kernel": CommandSpec(declare_kernel, reader(KernelFlags), kernel),
}
