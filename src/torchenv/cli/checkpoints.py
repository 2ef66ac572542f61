"""`checkpoints`: scan them, inspect them, keep a lifeboat, make copies that an older torch reads."""

from __future__ import annotations

import os
from argparse import SUPPRESS, Namespace
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from torchenv.cli.gather import list_roots, rescan_checkpoints
from torchenv.cli.options import add_catalogue, add_general, add_json, add_profile
from torchenv.cli.parser import CommandSpec, Parser, reader
from torchenv.cli.session import Session, now
from torchenv.errors import InputError, NothingSuits, ToolFailed

if TYPE_CHECKING:
    from torchenv.actions.checkpoints import Scanned

FOUND_SOMETHING = 1


class ScanFlags(NamedTuple):
    """What `checkpoints scan` takes."""

    paths: list[str]
    all: bool


class InspectFlags(NamedTuple):
    """What `checkpoints show` takes."""

    paths: list[str]
    tensors: bool


class KeepFlags(NamedTuple):
    """What `checkpoints keep` takes."""

    paths: list[str]
    copy: bool
    copy_to: str | None
    link: bool
    release: bool


class CheckFlags(NamedTuple):
    """What `checkpoints verify` takes."""

    paths: list[str]


class ConvertFlags(NamedTuple):
    """What `checkpoints convert` takes."""

    source: str
    to_path: str | None
    form: Literal["safetensors", "torch-save"]
    environment: str | None


class RepairFlags(NamedTuple):
    """What `checkpoints repair` takes."""

    source: str
    to_path: str | None
    optimizer: Literal["adam", "adamw"]


class GateFlags(NamedTuple):
    """What `checkpoints gate` takes."""

    paths: list[str]
    target: str


class CompareFlags(NamedTuple):
    """What `checkpoints diff` takes."""

    before: str
    after: str


class DowngradeFlags(NamedTuple):
    """What `checkpoints downgrade` takes."""

    source: str
    to: str | None
    target: str
    name: str | None
    prove: bool
    newest: bool
    all: bool
    link: bool


_Flags = (
    ScanFlags
    | InspectFlags
    | KeepFlags
    | CheckFlags
    | DowngradeFlags
    | GateFlags
    | CompareFlags
    | ConvertFlags
    | RepairFlags
)


def declare_checkpoints(parser: Parser) -> None:
    """Declare what `checkpoints` takes."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION", parser_class=Parser)

    scan = actions.add_parser("scan", help="Find checkpoints and record which environments read them")
    scan.add_argument(
        "paths", nargs="*", metavar="ROOT", help="Directories or addresses (default: the profile's)"
    )
    scan.add_argument(
        "--all", action="store_true", help="Show every run, with reasons, ways out and broken saves"
    )
    add_profile(scan, "Profile whose `[checkpoints] roots` are scanned")

    show = actions.add_parser("show", help="Show the details of checkpoints (records nothing)")
    show.add_argument(
        "paths", nargs="*", metavar="PATH", help="Checkpoints to look at (default: the last scan)"
    )
    show.add_argument("--tensors", action="store_true", help="List every tensor with its shape and dtype")
    add_catalogue(show)

    keep = actions.add_parser("keep", help="Record the hashes of a checkpoint and protect it (a lifeboat)")
    keep.add_argument("paths", nargs="+", metavar="PATH", help="Checkpoint")
    keep.add_argument(
        "--copy", action="store_true", help="Keep a copy in the workspace, cloned where possible"
    )
    keep.add_argument(
        "--copy-to", metavar="DIR", help="Keep a copy below a directory or s3://…, checked by its hashes"
    )
    keep.add_argument(
        "--link", action="store_true", help="Keep hard links: the same files, so a change is in both"
    )
    keep.add_argument("--release", action="store_true", help="Stop protecting it; its files stay")

    verify = actions.add_parser("verify", help="Check that kept checkpoints are unchanged")
    verify.add_argument(
        "paths", nargs="*", metavar="PATH", help="Checkpoints to check (default: all that are kept)"
    )

    down = actions.add_parser("downgrade", help="Make a copy that an older torch reads")
    down.add_argument(
        "source", metavar="SRC", help="Checkpoint, or with --newest or --all a directory of runs"
    )
    down.add_argument("to", nargs="?", metavar="DST", help="Copy to make (default: RUN-for-VERSION/SAVE)")
    down.add_argument(
        "--for",
        dest="target",
        required=True,
        metavar="VERSION",
        help="Version of torch that must read it, such as 2.14",
    )
    down.add_argument("--as", dest="name", metavar="NAME", help="Name the copy so that a framework finds it")
    down.add_argument("--prove", action="store_true", help="Load both, and compare every tensor bit for bit")
    which = down.add_mutually_exclusive_group()
    which.add_argument("--newest", action="store_true", help="Copy the newest save of every run below SRC")
    which.add_argument("--all", action="store_true", help="Copy every save below SRC")
    down.add_argument("--link", action="store_true", help="Hard-link files: writing into one changes both")
    down.add_argument("--copy", action="store_true", help=SUPPRESS)  # what it does without being asked

    gate = actions.add_parser("gate", help="Fail where an older torch cannot read the newest save of a run")
    gate.add_argument(
        "paths", nargs="*", metavar="ROOT", help="Directories or addresses (default: those known)"
    )
    gate.add_argument(
        "--readable-by",
        dest="target",
        required=True,
        metavar="VERSION",
        help="Older version of torch, such as 2.14",
    )
    add_profile(gate, "Profile with `lifeboat-max-age`")

    diff = actions.add_parser("diff", help="Compare the names, shapes and dtypes of two checkpoints")
    diff.add_argument("before", metavar="SAVE", help="Checkpoint")
    diff.add_argument("after", metavar="SAVE", help="Checkpoint to compare it with")

    change = actions.add_parser("convert", help="Write a checkpoint as safetensors or a file of torch.save")
    change.add_argument("source", metavar="SAVE", help="Checkpoint")
    change.add_argument(
        "to_path", nargs="?", metavar="DST", help="File to write (default: SAVE with the new suffix)"
    )
    change.add_argument(
        "--to", dest="form", required=True, choices=("safetensors", "torch-save"), help="Format to write"
    )
    change.add_argument("-e", "--environment", metavar="ENV", help="Environment whose torch reads it")

    mend = actions.add_parser("repair", help="Copy a save and add what newer releases of torch need")
    mend.add_argument("source", metavar="SAVE", help="Save from before torch 2.7")
    mend.add_argument("to_path", nargs="?", metavar="DST", help="Copy to make (default: RUN-repaired/SAVE)")
    mend.add_argument(
        "--optimizer", required=True, choices=("adam", "adamw"), help="Optimizer whose state it holds"
    )

    for action in (scan, show, keep, verify, down, gate, diff, change, mend):
        add_json(action)
        add_general(action, again=True)


def read_checkpoints_flags(flags: Namespace, cwd: Path) -> _Flags:
    """Return the flags of the action that was named."""
    kinds: dict[str, Callable[..., _Flags]] = {
        "scan": ScanFlags,
        "show": InspectFlags,
        "keep": KeepFlags,
        "verify": CheckFlags,
        "downgrade": DowngradeFlags,
        "gate": GateFlags,
        "diff": CompareFlags,
        "convert": ConvertFlags,
        "repair": RepairFlags,
    }
    return reader(kinds[flags.action])(flags, cwd)


def checkpoints(flags: _Flags, session: Session) -> int:
    """Do what was asked for; 1 where a check found something."""
    try:
        match flags:
            case ScanFlags():
                return _scan(flags, session)
            case InspectFlags():
                return _show(flags, session)
            case KeepFlags():
                return _keep(flags, session)
            case CheckFlags():
                return _verify(flags, session)
            case DowngradeFlags():
                return _downgrade(flags, session)
            case GateFlags():
                return _gate(flags, session)
            case CompareFlags():
                return _diff(flags, session)
            case ConvertFlags():
                return _convert(flags, session)
            case RepairFlags():
                return _repair(flags, session)
    except OSError as error:
        # A file that may not be read, a full disk, a store that does not answer: where, and what it said.
        raise ToolFailed(f"{error.filename or 'checkpoints'}: {error.strerror or error}") from None


def _locate(text: str, session: Session) -> str:
    """Return the address of a checkpoint that a person names: from here, else as the record names it.

    The record names what lies beside the workspace from there, and so do the commands that are advised.
    """
    from torchenv.actions.checkpoints import Paths, address_of
    from torchenv.storage import is_remote
    from torchenv.system.looking import resolve_parents

    here = address_of(text, session.settings.cwd)
    if is_remote(text) or os.path.lexists(here):
        return here
    there = str(resolve_parents(Path(Paths.of(session.store).address(text))))
    is_known = os.path.lexists(there) or any(kept.path == text for kept in session.store.read().kept)
    return there if is_known else here


def _list_places(named: Sequence[str], session: Session) -> tuple[str, ...]:
    from torchenv.actions.checkpoints import roots_of

    known = () if named else list_roots(session)
    return roots_of([_locate(text, session) for text in named], known, session.settings.cwd)


def _scan(flags: ScanFlags, session: Session) -> int:
    from torchenv.actions.checkpoints import scan_and_record
    from torchenv.render.checkpoints import describe_scan, encode_checkpoints
    from torchenv.storage import place

    roots = _list_places(flags.paths, session)
    with session.output.wait_for(f"scanning {', '.join(roots)}"):
        scanned, lines = scan_and_record(
            [place(root) for root in roots],
            session.store,
            whole=not flags.paths and bool(session.profile.checkpoints.roots),
            system=session.settings.checkpoint_system,
            say=session.output.say,
        )
    if session.output.is_json:
        session.output.print_document(encode_checkpoints(scanned, now()))
    else:
        session.output.print_text(describe_scan(scanned, lines, now(), show_all=flags.all))
    return _verdict(scanned)


def _show(flags: InspectFlags, session: Session) -> int:
    from torchenv.actions.checkpoints import examine, list_contents, read_recorded
    from torchenv.render.checkpoints import MeasuredReleases, describe_show, encode_checkpoints
    from torchenv.storage import place

    own = session.own_catalogue
    measured = MeasuredReleases(
        own, tuple(str(item.version) for item in session.catalogue.releases) if own else ()
    )

    if flags.tensors and not flags.paths:
        raise InputError("`--tensors` needs a checkpoint", hint="name one: `checkpoints show --tensors PATH`")
    if flags.paths:
        places = [place(_locate(path, session)) for path in flags.paths]
        scanned = examine(
            places, session.store, system=session.settings.checkpoint_system, say=session.output.say
        )
    else:
        scanned = read_recorded(session.store, system=session.settings.checkpoint_system)
    contents = list_contents(scanned, session.store) if flags.tensors else {}
    if session.output.is_json:
        session.output.print_document(encode_checkpoints(scanned, now(), measured, contents))
    else:
        session.output.print_text(describe_show(scanned, now(), measured, contents))
    return _verdict(scanned)


def _verdict(scanned: Scanned) -> int:
    return FOUND_SOMETHING if scanned.foreign else 0


def _keep(flags: KeepFlags, session: Session) -> int:
    from torchenv.actions.checkpoints import address_of
    from torchenv.actions.lifeboat import keep, refuse_inside, release
    from torchenv.actions.switch import find_readers
    from torchenv.checkpoints.lifeboats import make_printable
    from torchenv.render.checkpoints import describe_kept, describe_newer
    from torchenv.workspace.keys import as_json

    addresses = [_locate(path, session) for path in flags.paths]
    if flags.release:
        released = [release(address, session.store) for address in addresses]
        for one in released:
            session.output.say(f"{make_printable(one.path)} is no longer kept; its files stay")
        if session.output.is_json:
            document = {"schema": "torchenv.kept/1", "kept": [], "released": list(map(as_json, released))}
            session.output.print_document(document)
        return 0
    copy_to = address_of(flags.copy_to, session.settings.cwd) if flags.copy_to else None
    if copy_to:
        for address in addresses:
            refuse_inside(address, copy_to)
    kept = []
    guarded: list[tuple[str, tuple[int, ...]]] = []
    for address in addresses:
        keeping = keep(
            address,
            session.store,
            copy=flags.copy or flags.link,
            copy_to=copy_to,
            link=flags.link,
            system=session.settings.checkpoint_system,
            progress=session.output.progress(f"hashing {address}"),
        )
        reading = find_readers(keeping.kept, session.store.read(), session.store)
        numbers = tuple(environment.number for environment in reading)
        kept.append(as_json(replace(keeping.kept, readable_by=numbers)))
        guarded.append((keeping.kept.path, numbers))
        if not session.output.is_json:
            session.output.print_text(describe_kept(keeping, reading))
    # A lifeboat far behind is worth little: what is newer is looked for now, and not as a scan once saw it.
    runs = rescan_checkpoints(session).runs
    for path, numbers in guarded:
        if (line := describe_newer(path, numbers, runs)) is not None:
            session.output.note(line)
    if session.output.is_json:
        session.output.print_document({"schema": "torchenv.kept/1", "kept": kept})
    return 0


def _verify(flags: CheckFlags, session: Session) -> int:
    from torchenv.actions.lifeboat import verify
    from torchenv.render.checkpoints import describe_verified, encode_verified

    addresses = tuple(_locate(path, session) for path in flags.paths)
    kept, changes = verify(addresses, session.store, session.output.progress("hashing"))
    if session.output.is_json:
        session.output.print_document(encode_verified(kept, changes))
    else:
        session.output.print(describe_verified(kept, changes))
    return FOUND_SOMETHING if changes else 0


def _downgrade(flags: DowngradeFlags, session: Session) -> int:
    from torchenv.actions.checkpoints import address_of
    from torchenv.actions.downgrade import DowngradeTarget, downgrade, downgrade_runs
    from torchenv.actions.lifeboat import hash_files
    from torchenv.actions.read_save import prove_copy
    from torchenv.render.checkpoints import describe_copied, encode_copied
    from torchenv.storage import place

    target = DowngradeTarget.of(flags.target, session.store.read(), session.settings.checkpoint_system)
    source = _locate(flags.source, session)
    to = address_of(flags.to, session.settings.cwd) if flags.to else None
    if to == source:
        raise InputError("the copy cannot be where the original is", hint="name another place")
    if flags.name and (to or flags.newest or flags.all or "/" in flags.name):
        raise InputError("`--as` names the copy of one save", hint="leave out DST, --newest and --all")
    if flags.prove and (flags.newest or flags.all):
        raise InputError("`--prove` is for one save", hint="leave out --newest and --all")
    before = hash_files(place(source), session.output.progress("hashing")) if flags.prove else {}
    progress = session.output.progress("copying")
    refused: tuple[str, ...] = ()
    if flags.newest or flags.all:
        copies, refused = downgrade_runs(
            source,
            target,
            newest=flags.newest,
            to=to,
            link=flags.link,
            progress=progress,
            say=session.output.say,
        )
    else:
        copied = downgrade(source, target, to=to, name=flags.name, link=flags.link, progress=progress)
        copies = (copied,)
    for copied in copies:
        if copied.made:
            session.store.note_copy("downgraded", copied.copy, copied.source)
    proofs = [
        prove_copy(copied, before, target, session.store, session.programs)
        for copied in copies
        if flags.prove and copied.copy != copied.source
    ]
    session.output.show(
        lambda: describe_copied(copies, refused, proofs), lambda: encode_copied(copies, refused, proofs)
    )
    if any(proof.differences for proof in proofs):
        return FOUND_SOMETHING
    return NothingSuits.exit_code if refused else 0


def _gate(flags: GateFlags, session: Session) -> int:
    """Look at every run and record nothing; 1 where one is held back."""
    from torchenv.actions.downgrade import DowngradeTarget
    from torchenv.actions.gate import check_gate
    from torchenv.render.checkpoints import describe_gate, encode_gate

    settings = session.settings
    target = DowngradeTarget.of(flags.target, session.store.read(), settings.checkpoint_system)
    roots = _list_places(flags.paths, session)
    oldest = session.profile.checkpoints.lifeboat_max_age
    gate = check_gate(roots, session.store, target, oldest=oldest, now=now())
    session.output.show(lambda: describe_gate(gate, target.torch), lambda: encode_gate(gate, target.torch))
    return FOUND_SOMETHING if gate.findings else 0


def _convert(flags: ConvertFlags, session: Session) -> int:
    """Have a torch read it and write it, and verify what was written."""
    from torchenv.actions.checkpoints import address_of
    from torchenv.actions.read_save import convert
    from torchenv.render.checkpoints import describe_converted, encode_converted

    cwd, named = session.settings.cwd, flags.environment
    converted = convert(
        _locate(flags.source, session),
        flags.form,
        session.store,
        target=address_of(flags.to_path, cwd) if flags.to_path else None,
        environment=session.store.read().find(named) if named else None,
        system=session.settings.checkpoint_system,
        run=session.programs,
    )
    session.store.note_copy("converted", converted.target, converted.source)
    session.output.show(lambda: describe_converted(converted), lambda: encode_converted(converted))
    return 0


def _repair(flags: RepairFlags, session: Session) -> int:
    """Make a copy with what is missing, and see that it holds all else."""
    from torchenv.actions.checkpoints import address_of
    from torchenv.actions.repair import repair
    from torchenv.render.checkpoints import describe_repaired, encode_repaired

    cwd = session.settings.cwd
    repaired = repair(
        _locate(flags.source, session),
        flags.optimizer,
        session.store,
        to=address_of(flags.to_path, cwd) if flags.to_path else None,
        system=session.settings.checkpoint_system,
        run=session.programs,
        progress=session.output.progress("copying"),
    )
    session.store.note_copy("repaired", repaired.copy, repaired.source)
    session.output.show(lambda: describe_repaired(repaired), lambda: encode_repaired(repaired))
    return 0


def _diff(flags: CompareFlags, session: Session) -> int:
    """Compare two checkpoints, whoever can read them; nothing is recorded."""
    from torchenv.checkpoints.contents import compare, read_contents
    from torchenv.render.checkpoints import describe_contents_diff, encode_contents_diff
    from torchenv.storage import place

    found = []
    for text in flags:
        there = place(_locate(text, session))
        if not there.exists():
            raise InputError(f"`{text}` does not exist")
        found.append(read_contents(there.tree(there.address)))
    diff = compare(*found)
    session.output.show(
        lambda: describe_contents_diff(flags.before, flags.after, diff),
        lambda: encode_contents_diff(flags.before, flags.after, diff),
    )
    return 0


COMMANDS = {"checkpoints": CommandSpec(declare_checkpoints, read_checkpoints_flags, checkpoints)}
