"""`torchenv checkpoints`: who can read each, keep a lifeboat, make copies that an older torch reads."""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser, Namespace
from typing import TYPE_CHECKING

from torchenv.cli.checkpoint_checks import add_parsers, run_convert, run_diff, run_gate
from torchenv.cli.context import Context
from torchenv.cli.parser import Parser
from torchenv.errors import InputError, NothingSuits, ToolFailed

if TYPE_CHECKING:
    from torchenv.actions.checkpoints import Scanned

FOUND_SOMETHING = 1


def options(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION", parser_class=Parser)

    scan = actions.add_parser("scan", help="find checkpoints, and record who reads what")
    scan.add_argument("paths", nargs="*", metavar="ROOT", help="directories or addresses; else the profile's")
    scan.add_argument("--profile", metavar="NAME|FILE", help="whose `[checkpoints] roots` are looked into")

    show = actions.add_parser("show", help="all that is known of checkpoints; records nothing")
    show.add_argument("paths", nargs="*", metavar="PATH", help="looked at now; else what the last scan found")

    keep = actions.add_parser("keep", help="record its hashes and guard it: a lifeboat")
    keep.add_argument("paths", nargs="+", metavar="PATH", help="a checkpoint")
    keep.add_argument(
        "--copy", action="store_true", help="Keep a copy in the workspace, cloned where possible"
    )
    keep.add_argument(
        "--copy-to", metavar="DIR", help="Keep a copy below a directory or s3://…, proved by its hashes"
    )
    keep.add_argument("--link", action="store_true", help="Keep hard links: the same files, changed with it")
    keep.add_argument("--release", action="store_true", help="keep it no longer; its files stay as they are")

    verify = actions.add_parser("verify", help="prove that what was kept is untouched")
    verify.add_argument("paths", nargs="*", metavar="PATH", help="else every checkpoint that is kept")

    down = actions.add_parser("downgrade", help="make a copy that an older torch reads")
    down.add_argument(
        "source", metavar="SRC", help="a checkpoint; with --newest or --all, where the runs are"
    )
    down.add_argument("to", nargs="?", metavar="DST", help="the copy, else RUN-for-VERSION/SAVE")
    down.add_argument(
        "--for", dest="target", required=True, metavar="VERSION", help="who is to read it: 2.14"
    )
    down.add_argument("--as", dest="name", metavar="NAME", help="Name the copy so that a framework finds it")
    down.add_argument("--prove", action="store_true", help="Load both, and compare every tensor bit for bit")
    which = down.add_mutually_exclusive_group()
    which.add_argument("--newest", action="store_true", help="of the newest save of every run below SRC")
    which.add_argument("--all", action="store_true", help="of every save below SRC")
    down.add_argument("--link", action="store_true", help="Hard-link files: writing into one changes both")
    down.add_argument("--copy", action="store_true", help=SUPPRESS)  # what it does without being told

    for action in (scan, show, keep, verify, down, *add_parsers(actions)):
        action.add_argument("--json", action="store_true", help="print it as JSON")
        action.add_argument("--root", metavar="DIR", default=SUPPRESS, help="the workspace")
        action.add_argument("-q", "--quiet", action="store_true", default=SUPPRESS, help="say no news")


def run(arguments: Namespace, context: Context) -> int:
    """Do what was asked for; 1 where a check found something."""
    act = {
        "scan": _scan,
        "show": _show,
        "keep": _keep,
        "verify": _verify,
        "downgrade": _downgrade,
        "gate": run_gate,
        "diff": run_diff,
        "convert": run_convert,
    }
    try:
        return act[arguments.action](arguments, context)
    except BrokenPipeError:
        raise
    except OSError as error:
        # A file that may not be read, a full disk, a store that does not answer: where, and what it said.
        raise ToolFailed(f"{error.filename or arguments.action}: {error.strerror or error}") from None


def _scan(arguments: Namespace, context: Context) -> int:
    from torchenv.actions.checkpoints import roots_of, scan_and_record
    from torchenv.cli.rescan import list_roots
    from torchenv.render.checkpoints import describe_scan, encode_checkpoints
    from torchenv.storage import place

    roots = roots_of(arguments.paths, () if arguments.paths else list_roots(context), context.cwd)
    scanned, lines = scan_and_record(
        [place(each) for each in roots],
        context.store,
        whole=not arguments.paths and bool(context.profile.checkpoints.roots),
        system=context.system,
        say=context.say,
    )
    if arguments.json:
        context.print_json(encode_checkpoints(scanned, context.now()))
    else:
        context.out(describe_scan(scanned, lines, context.now()))
    return _verdict(scanned)


def _show(arguments: Namespace, context: Context) -> int:
    from torchenv.actions.checkpoints import address_of, examine, read_recorded
    from torchenv.render.checkpoints import describe_show, encode_checkpoints
    from torchenv.storage import place

    if arguments.paths:
        places = [place(address_of(each, context.cwd)) for each in arguments.paths]
        scanned = examine(places, context.store, system=context.system, say=context.say)
    else:
        scanned = read_recorded(context.store, system=context.system)
    if arguments.json:
        context.print_json(encode_checkpoints(scanned, context.now()))
    else:
        context.out(describe_show(scanned, context.now()))
    return _verdict(scanned)


def _verdict(scanned: Scanned) -> int:
    return FOUND_SOMETHING if scanned.foreign else 0


def _keep(arguments: Namespace, context: Context) -> int:
    from torchenv.actions.checkpoints import address_of
    from torchenv.actions.lifeboat import keep, release
    from torchenv.render.checkpoints import describe_kept
    from torchenv.workspace.records import as_json

    addresses = [address_of(each, context.cwd) for each in arguments.paths]
    if arguments.release:
        released = [release(each, context.store) for each in addresses]
        for one in released:
            context.say(f"{one.path} is kept no longer; its files stay as they are")
        if arguments.json:
            document = {"schema": "torchenv.kept/1", "kept": [], "released": list(map(as_json, released))}
            context.print_json(document)
        return 0
    kept = []
    for each in addresses:
        keeping = keep(
            each,
            context.store,
            copy=arguments.copy or arguments.link,
            copy_to=address_of(arguments.copy_to, context.cwd) if arguments.copy_to else None,
            link=arguments.link,
            system=context.system,
            progress=context.progress(f"hashing {each}"),
        )
        kept.append(as_json(keeping.kept))
        if not arguments.json:
            context.out(describe_kept(keeping, context.store.read().environments))
    if arguments.json:
        context.print_json({"schema": "torchenv.kept/1", "kept": kept})
    return 0


def _verify(arguments: Namespace, context: Context) -> int:
    from torchenv.actions.checkpoints import address_of
    from torchenv.actions.lifeboat import verify
    from torchenv.render.checkpoints import describe_verified, encode_verified

    addresses = tuple(address_of(each, context.cwd) for each in arguments.paths)
    kept, changes = verify(addresses, context.store, context.progress("hashing"))
    if arguments.json:
        context.print_json(encode_verified(kept, changes))
    else:
        context.out(describe_verified(kept, changes))
    return FOUND_SOMETHING if changes else 0


def _downgrade(arguments: Namespace, context: Context) -> int:
    from torchenv.actions.checkpoints import address_of
    from torchenv.actions.downgrade import DowngradeTarget, downgrade, downgrade_runs
    from torchenv.actions.lifeboat import hash_files
    from torchenv.actions.read_save import prove_copy
    from torchenv.render.checkpoints import describe_copied, encode_copied
    from torchenv.storage import place

    target = DowngradeTarget.of(arguments.target, context.store.read(), context.system)
    source = address_of(arguments.source, context.cwd)
    to = address_of(arguments.to, context.cwd) if arguments.to else None
    if to == source:
        raise InputError("the copy cannot be where the original is", hint="name another place")
    if arguments.name and (to or arguments.newest or arguments.all or "/" in arguments.name):
        raise InputError("`--as` names the copy of one save", hint="leave out DST, --newest and --all")
    if arguments.prove and (arguments.newest or arguments.all):
        raise InputError("`--prove` is for one save", hint="leave out --newest and --all")
    before = hash_files(place(source), context.progress("hashing")) if arguments.prove else {}
    progress = context.progress("copying")
    refused: tuple[str, ...] = ()
    if arguments.newest or arguments.all:
        copies, refused = downgrade_runs(
            source,
            target,
            newest=arguments.newest,
            to=to,
            link=arguments.link,
            progress=progress,
            say=context.say,
        )
    else:
        copied = downgrade(source, target, to=to, name=arguments.name, link=arguments.link, progress=progress)
        copies = (copied,)
    proofs = [
        prove_copy(copied, before, target, context.store, context.run)
        for copied in copies
        if arguments.prove and copied.copy != copied.source
    ]
    if arguments.json:
        context.print_json(encode_copied(copies, refused, proofs))
    else:
        context.out(describe_copied(copies, refused, proofs))
    if any(proof.differences for proof in proofs):
        return FOUND_SOMETHING
    return NothingSuits.exit_code if refused else 0
