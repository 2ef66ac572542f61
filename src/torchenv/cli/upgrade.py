"""`upgrade`, `commit`: the whole careful road to a new release, resumable, and the end of its trial."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from torchenv.cli.building import CreateFlags, create
from torchenv.cli.choice import make_wish
from torchenv.cli.gather import gather_known, probe_host, read_hosts, rescan_checkpoints
from torchenv.cli.options import add_catalogue, add_json, add_offline, add_profile
from torchenv.cli.parser import CommandSpec, Parser, reader
from torchenv.cli.session import Session, now
from torchenv.cli.settings import PROJECT_FILE
from torchenv.cli.upgrade_check import check, choose, make_plan
from torchenv.errors import InputError, NothingSuits, TorchenvError, WorkspaceError
from torchenv.plan import Outcome, Question, resolve
from torchenv.workspace.journal import STEPS, Journal, Step

if TYPE_CHECKING:
    from torchenv.actions.upgrade import Findings

FAILED = 1


class UpgradeFlags(NamedTuple):
    """What `upgrade` takes."""

    version: str | None
    check: bool
    until: str | None
    restart: bool
    abort: bool
    yes: bool
    host: list[str]


def declare_upgrade(parser: Parser) -> None:
    """Declare what `upgrade` takes."""
    parser.add_argument("version", nargs="?", help="Release to upgrade to (default: the newest)")
    parser.add_argument("--until", choices=STEPS, metavar="STEP", help=f"Stop after STEP: {', '.join(STEPS)}")
    parser.add_argument("--yes", action="store_true", help="Go on without asking")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--check", action="store_true", help="Stop after the verdict (0 go, 1 not now, 3 cannot)"
    )
    which.add_argument("--restart", action="store_true", help="Begin again with the first step")
    which.add_argument("--abort", action="store_true", help="Switch back and remove what the upgrade built")
    parser.add_argument(
        "--host",
        metavar="FILE",
        nargs="+",
        action="extend",
        default=[],
        help="With --check: judge the machines in these files",
    )
    add_profile(parser, "Profile to plan for (default: torchenv.toml, else `default`)")
    add_offline(parser)
    add_catalogue(parser)
    add_json(parser, "Print the torchenv.upgrade/1 document")


def upgrade(flags: UpgradeFlags, session: Session) -> int:
    """Walk the road from where it was left: check, build, prove, compare, protect, switch."""
    from torchenv.render.upgrade import encode_upgrade

    if flags.abort:
        return _abort(session)
    if flags.host:
        return _check_hosts(flags, session)
    journal = None if flags.restart or flags.check else session.store.read_journal()
    if journal is not None and journal.next is None:
        session.output.say(f"environment {journal.new} is active; end the trial with `torchenv commit`")
        session.output.show(lambda: "", lambda: encode_upgrade(None, journal))
        return 0
    found = None
    if journal is None:
        found = check(flags.version, session)
        _show_findings(found, session)
        if flags.check or not _may_go_on(found, flags, session):
            if session.output.is_json:
                session.output.print_document(encode_upgrade(found, None))
            return found.verdict.exit_code if flags.check else _stay(found, session)
        journal = Journal(requested=flags.version or "latest", started=now())
        journal = journal.finish("check", old=_record_old(found, session))
        _record(journal, session)
    else:
        to = "" if journal.requested == "latest" else f" to torch {journal.requested}"
        session.output.say(f"continuing the upgrade{to}: {journal.next}")
    journal = _walk(journal, flags, session)
    session.output.show(lambda: _describe_end(journal), lambda: encode_upgrade(found, journal))
    return 0


def _record_old(found: Findings, session: Session) -> int | None:
    """Return the number of the environment to go back to, recording it where it is not yet."""
    from pathlib import Path

    from torchenv.actions.adopt import adopt

    if found.old is None or found.is_recorded:
        return found.old.number if found.old else None
    return adopt(Path(found.old.path), session.catalogue, session.make_ports()).environment.number


def _describe_end(journal: Journal) -> str:
    if journal.next is None:
        back = "switch back with `torchenv rollback`, or " if journal.old else ""
        return f"environment {journal.new} is active; {back}end the trial with `torchenv commit`"
    return f"stopped before `{journal.next}`; continue with `torchenv upgrade`"


def _walk(journal: Journal, flags: UpgradeFlags, session: Session) -> Journal:
    """Do the steps that are left; raises what stops one, with the way on and the way back."""
    steps = {"create": _create, "smoke": _smoke, "evaluate": _evaluate, "keep": _keep, "switch": _switch}
    last = flags.until
    while (step := journal.next) is not None and last not in journal.done:
        session.output.say(f"step {STEPS.index(step) + 1} of {len(STEPS)}: {step}")
        try:
            journal = steps[step](journal, session)
        except TorchenvError as error:
            _explain_stop(error, step, journal)
            raise
        _record(journal, session)
    return journal


def _explain_stop(error: TorchenvError, step: Step, journal: Journal) -> None:
    stays = f"environment {journal.old} stays active" if journal.old else "nothing was switched"
    way = "continue with `torchenv upgrade`, or undo it with `torchenv upgrade --abort`"
    error.hint = f"{error.hint}; then {way}" if error.hint else way
    error.message = f"{step}: {error.message} ({stays})"


def _record(journal: Journal, session: Session) -> None:
    with session.store.hold("torchenv upgrade"):
        session.store.write_journal(journal)


def _quiet(session: Session) -> Session:
    """Return a session whose results are news: the road has one result of its own."""
    return replace(session, output=session.output.aside())


def _show_findings(found: Findings, session: Session) -> None:
    from torchenv.render.upgrade import describe_findings

    text = describe_findings(found)
    if session.output.is_json:
        session.output.say(text)
    else:
        session.output.print(text)


def _may_go_on(found: Findings, flags: UpgradeFlags, session: Session) -> bool:
    from torchenv.actions.upgrade import Verdict

    if found.verdict in {Verdict.STAY, Verdict.CANNOT}:
        return False
    if flags.yes or found.verdict is Verdict.GO:
        return True
    if session.stdin is not None and session.stdin.isatty():
        return session.ask_yes_no("upgrade now?")
    session.output.say("to continue without being asked: `torchenv upgrade --yes`")
    return False


def _stay(found: Findings, session: Session) -> int:
    """Write the pin of those who stay, which is a result and no failure."""
    from packaging.version import Version

    from torchenv.actions.upgrade import Verdict, pin_profile

    if found.verdict is Verdict.CANNOT:
        raise NothingSuits("nothing suits this machine", hint=found.plan.hint)
    build, project = found.plan.build, session.settings.project
    if found.verdict is Verdict.AT_BOUNDARY or build is None or project is None:
        return 0
    old = found.old.torch if found.old else None
    if found.plan.outcome is Outcome.FALLBACK:
        line, backend = str(build.release.version), build.backend.tag
    elif old is None or Version(old) >= build.release.version:
        session.output.say("nothing to do")
        return 0
    else:
        # The code is not ready: the release in use goes on.
        line, backend = old, None
    path = session.settings.profile_path or project / PROJECT_FILE
    line = ".".join(line.split("+")[0].split(".")[:2])
    pin_profile(path, line, backend)
    session.output.say(f"pinned torch {line} in `{path}`")
    return 0


def _create(journal: Journal, session: Session) -> Journal:
    from torchenv.actions.upgrade import find_made

    manifest = session.store.read()
    old = next((one for one in manifest.environments if one.number == journal.old), None)
    plan = make_plan(journal.requested, gather_known(session), probe_host(session), session)
    made = find_made(manifest, plan, old)
    if journal.first is None:
        # Written before anything is built: what is numbered lower was there, whoever stops this.
        journal = replace(journal, first=manifest.next_number)
        _record(journal, session)
    if made is not None:
        session.output.say(f"using environment {made}, which is already built")
    else:
        like = str(old.number) if old is not None else None
        flags = CreateFlags(
            choose(journal.requested), like, (), use=False, dry_run=False, again=True, is_step=True
        )
        create(flags, _quiet(session))
        made = find_made(session.store.read(), plan, old)
    if made is None:
        raise WorkspaceError("nothing new was built", hint="list the environments with `torchenv list`")
    return journal.finish("create", new=made.number)


def _smoke(journal: Journal, session: Session) -> Journal:
    from torchenv.cli.proofs import SmokeFlags, smoke

    if smoke(SmokeFlags(str(journal.new)), _quiet(session)):
        raise NothingSuits(
            f"environment {journal.new} failed its checks",
            hint=f"see why with `torchenv doctor {journal.new}`",
        )
    return journal.finish("smoke")


def _evaluate(journal: Journal, session: Session) -> Journal:
    from torchenv.cli.proofs import EvaluateFlags, evaluate

    if not session.profile.evaluation.commands or journal.old is None:
        session.output.say("no evaluation in the profile; nothing to compare")
        return journal.finish("evaluate")
    if evaluate(EvaluateFlags(str(journal.new), str(journal.old)), _quiet(session)):
        raise NothingSuits(
            f"environment {journal.new} measures worse than environment {journal.old}",
            hint="fix the code, or widen the tolerance in the profile",
        )
    return journal.finish("evaluate")


def _keep(journal: Journal, session: Session) -> Journal:
    from torchenv.actions.checkpoints import Paths
    from torchenv.actions.lifeboat import keep
    from torchenv.actions.upgrade import list_boats

    manifest = session.store.read()
    old = next((one for one in manifest.environments if one.number == journal.old), None)
    if old is None:
        return journal.finish("keep")
    seen = rescan_checkpoints(session)
    for path in list_boats(session.store.read(), old, seen.runs):
        # Written before it is protected: who is stopped in between protects it, and none is forgotten.
        journal = replace(journal, kept=tuple(dict.fromkeys((*journal.kept, path))))
        _record(journal, session)
        keep(
            Paths.of(session.store).address(path),
            session.store,
            copy=False,
            system=session.settings.checkpoint_system,
            progress=session.output.progress(f"hashing {path}"),
        )
        session.output.say(f"protected {path}, which environment {old} reads")
    return journal.finish("keep")


def _switch(journal: Journal, session: Session) -> Journal:
    from torchenv.cli.switching import UseFlags, use

    if session.store.read().current != journal.new:
        use(UseFlags(str(journal.new), force=False), _quiet(session))
    if (target := session.profile.checkpoints.write_for) is not None:
        session.output.say(
            f"`torchenv run` writes distributed checkpoints for torch {target}, as the profile says"
        )
    return journal.finish("switch")


def _abort(session: Session) -> int:
    """Switch back, and remove what the upgrade built; lifeboats stay."""
    from torchenv.actions.remove import remove
    from torchenv.cli.gather import explain_irreplaceable
    from torchenv.cli.switching import UseFlags, use

    journal = session.store.read_journal()
    if journal is None:
        raise InputError("no upgrade to abort", hint="begin one with `torchenv upgrade`")
    manifest = session.store.read()
    if journal.old is not None and manifest.current == journal.new:
        use(UseFlags(str(journal.old), force=True), _quiet(session))
    new = next((one for one in manifest.environments if one.number == journal.new and one.on_disk), None)
    if new is not None and not journal.has_built:
        session.output.say(f"environment {new} stays: it was there before the upgrade")
    elif new is not None:
        remove(
            [str(journal.new)],
            session.store,
            session.running,
            irreplaceable=explain_irreplaceable(session, force=True),
            force=True,
        )
        session.output.say(f"removed environment {new}; its lock file stays")
    with session.store.hold("torchenv upgrade --abort"):
        session.store.delete_journal()
    session.output.say("upgrade undone")
    return 0


def _check_hosts(flags: UpgradeFlags, session: Session) -> int:
    """Print the verdict for each kind of host; nothing is changed."""
    from torchenv.actions.upgrade import Verdict, judge_upgrade
    from torchenv.render.upgrade import describe_host_verdicts

    if not flags.check:
        command = shlex.join(["torchenv", "upgrade", "--check", "--host", *flags.host])
        raise InputError("`--host` needs `--check`", hint=f"run `{command}`")
    verdicts: dict[Verdict, list[str]] = {}
    reasons: dict[Verdict, list[str]] = {}
    wish = make_wish(choose(flags.version), session)
    for name, host in read_hosts(flags.host, session).items():
        plan = resolve(
            Question(
                host=host,
                wish=wish,
                catalogue=session.catalogue,
                known=gather_known(session),
                is_elsewhere=True,
            )
        )
        verdict = judge_upgrade(plan)
        verdicts.setdefault(verdict, []).append(name)
        said = plan.advice.reasons or plan.why
        reasons.setdefault(verdict, []).extend([*said, *filter(None, [plan.opens])])
    document = {
        "schema": "torchenv.upgrade-fleet/1",
        "verdicts": [
            {"verdict": verdict.value, "hosts": names, "reasons": list(dict.fromkeys(reasons[verdict]))}
            for verdict, names in verdicts.items()
        ],
    }
    session.output.show(lambda: describe_host_verdicts(verdicts, reasons), lambda: document)
    return max((verdict.exit_code for verdict in verdicts), default=0)


class CommitFlags(NamedTuple):
    """What `commit` takes."""

    remove: bool


def declare_commit(parser: Parser) -> None:
    """Declare what `commit` takes."""
    parser.add_argument(
        "--remove", action="store_true", help="Remove the old environment, and release its lifeboats"
    )


def commit(flags: CommitFlags, session: Session) -> int:
    """End the trial of an upgrade: the way back is no longer guarded."""
    from torchenv.actions.checkpoints import Paths
    from torchenv.actions.lifeboat import release
    from torchenv.actions.remove import remove
    from torchenv.cli.gather import explain_irreplaceable

    journal = session.store.read_journal()
    if journal is None or journal.next is not None:
        raise InputError("no upgrade on trial", hint="begin or continue with `torchenv upgrade`")
    if flags.remove:
        protected = {boat.path for boat in session.store.read().kept}
        for path in journal.kept:
            if path in protected:
                release(Paths.of(session.store).address(path), session.store)
        if journal.old is not None:
            remove(
                [str(journal.old)],
                session.store,
                session.running,
                irreplaceable=explain_irreplaceable(session, force=True),
                force=True,
            )
    with session.store.hold("torchenv commit"):
        session.store.delete_journal()
    rest = "" if flags.remove else "; the old environment and the lifeboats stay until you remove them"
    session.output.say(f"the trial of environment {journal.new} has ended{rest}")
    return 0


COMMANDS = {
    "upgrade": CommandSpec(declare_upgrade, reader(UpgradeFlags), upgrade),
    "commit": CommandSpec(declare_commit, reader(CommitFlags), commit),
}
