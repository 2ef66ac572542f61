"""`torchenv checkpoints gate` and `diff`: checks that change and record nothing."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from torchenv.cli.context import Context

if TYPE_CHECKING:
    from argparse import ArgumentParser, _SubParsersAction

FOUND_SOMETHING = 1


def add_parsers(actions: _SubParsersAction[Any]) -> tuple[ArgumentParser, ...]:
    """Declare what the commands take."""
    gate = actions.add_parser("gate", help="Fail where an older torch cannot read the newest save of a run")
    gate.add_argument("paths", nargs="*", metavar="ROOT", help="Directories or addresses; else those known")
    gate.add_argument(
        "--readable-by", dest="target", required=True, metavar="VERSION", help="The older torch: 2.14"
    )
    gate.add_argument("--profile", metavar="NAME|FILE", help="The profile with `lifeboat-max-age`")

    diff = actions.add_parser("diff", help="Compare the names, shapes and dtypes of two checkpoints")
    diff.add_argument("before", metavar="A", help="A checkpoint")
    diff.add_argument("after", metavar="B", help="Another")

    change = actions.add_parser("convert", help="Write a checkpoint as safetensors or a file of torch.save")
    change.add_argument("source", metavar="SAVE", help="A checkpoint")
    change.add_argument("to_path", nargs="?", metavar="DST", help="The file, else SAVE with its suffix")
    change.add_argument("--to", dest="form", required=True, choices=("safetensors", "torch-save"))
    change.add_argument("-e", "--environment", metavar="ENV", help="The environment whose torch reads it")
    return gate, diff, change


def run_gate(arguments: Namespace, context: Context) -> int:
    """Look at every run; 1 where one is held back."""
    from torchenv.actions.checkpoints import roots_of
    from torchenv.actions.downgrade import DowngradeTarget
    from torchenv.actions.gate import check_gate
    from torchenv.cli.rescan import list_roots
    from torchenv.render.checkpoints import describe_gate, encode_gate

    target = DowngradeTarget.of(arguments.target, context.store.read(), context.system)
    roots = roots_of(arguments.paths, () if arguments.paths else list_roots(context), context.cwd)
    oldest = context.profile.checkpoints.lifeboat_max_age
    gate = check_gate(roots, context.store, target, oldest=oldest, now=context.now())
    if arguments.json:
        context.print_json(encode_gate(gate, target.torch))
    else:
        context.out(describe_gate(gate, target.torch))
    return FOUND_SOMETHING if gate.findings else 0


def run_convert(arguments: Namespace, context: Context) -> int:
    """Have a torch read it and write it, and verify what was written."""
    from torchenv.actions.checkpoints import address_of
    from torchenv.actions.read_save import convert
    from torchenv.render.checkpoints import describe_converted, encode_converted

    named = arguments.environment
    converted = convert(
        address_of(arguments.source, context.cwd),
        arguments.form,
        context.store,
        target=address_of(arguments.to_path, context.cwd) if arguments.to_path else None,
        environment=context.store.read().find(named) if named else None,
        system=context.system,
        run=context.run,
    )
    if arguments.json:
        context.print_json(encode_converted(converted))
    else:
        context.out(describe_converted(converted))
    return 0


def run_diff(arguments: Namespace, context: Context) -> int:
    """Compare two checkpoints, whoever can read them."""
    from torchenv.actions.checkpoints import address_of
    from torchenv.checkpoints.contents import compare, read_contents
    from torchenv.errors import InputError
    from torchenv.render.checkpoints import describe_contents_diff, encode_contents_diff
    from torchenv.storage import place

    found = []
    for text in (arguments.before, arguments.after):
        there = place(address_of(text, context.cwd))
        if not there.exists():
            raise InputError(f"`{text}` does not exist")
        found.append(read_contents(there.tree(there.address)))
    diff = compare(*found)
    if arguments.json:
        context.print_json(encode_contents_diff(arguments.before, arguments.after, diff))
    else:
        context.out(describe_contents_diff(arguments.before, arguments.after, diff))
    return 0
