"""Checkpoints, lifeboats and copies, as people and programs read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchenv.checkpoints.lifeboats import describe_run, make_printable
from torchenv.checkpoints.readability import Rules, rules
from torchenv.checkpoints.steps import behind
from torchenv.checkpoints.values import Certainty, Reader, describe_state, escape_name, runs_code, some
from torchenv.render.environment import RUNS_SHOWN, columns, count_hidden, describe_run_row
from torchenv.storage import Transfer
from torchenv.storage.carry import describe_size
from torchenv.system.values import frozen
from torchenv.system.words import count
from torchenv.workspace.keys import as_json
from torchenv.workspace.records import Environment, Kept, Run

if TYPE_CHECKING:
    from torchenv.actions.checkpoints import Scanned
    from torchenv.actions.downgrade import Copied
    from torchenv.actions.gate import Gate
    from torchenv.actions.lifeboat import Keeping, KeptChange
    from torchenv.actions.pointers import CopyPointer
    from torchenv.actions.read_save import Converted, CopyProof
    from torchenv.actions.repair import Repaired
    from torchenv.checkpoints.contents import Contents, ContentsDiff, TensorForm
    from torchenv.checkpoints.scan.runs import Part, Save, Saves

SCHEMA = "torchenv.checkpoints/1"
# A save whose files changed within this time may still be going on.
_FRESH = timedelta(minutes=10)
_SCREEN = 40  # lines that `show` prints where there is more than one checkpoint
_SHOWN = 10  # names of a difference
_MOST = 5  # broken or foreign checkpoints that are told of one by one


@frozen
class MeasuredReleases:
    """What is known of releases: the rules of their checkpoints, and those that a user's catalogue adds."""

    own: Path | None = None
    releases: tuple[str, ...] = ()

    @property
    def rules(self) -> Rules:
        """The rules, a user's own laid over them."""
        return rules(self.own)

    def certainty(self, reader: Reader, environments: Iterable[Environment]) -> Certainty:
        """Return how sure a reader is for the catalogue's releases and for the environments there are."""
        torches = (*self.releases, *(environment.torch for environment in environments if environment.torch))
        return self.rules.certainty(reader, (torch for torch in torches if torch in reader.torch))


PACKAGED = MeasuredReleases()


def encode_checkpoints(
    scanned: Scanned,
    now: datetime,
    measured: MeasuredReleases = PACKAGED,
    contents: Mapping[str, Contents | str] | None = None,
) -> dict[str, Any]:
    """Return the `torchenv.checkpoints/1` document; with `contents` each checkpoint lists what it holds."""
    checkpoints = [
        {
            **_entry(part, save, run.path, scanned, now=now, measured=measured),
            **_encode_contents((contents or {}).get(part.path)),
        }
        for run in scanned.runs
        for save in run.saves
        for part in save.parts
    ]
    return {"schema": SCHEMA, "roots": list(scanned.roots), "checkpoints": checkpoints}


def describe_scan(scanned: Scanned, lines: Sequence[Run], now: datetime, *, show_all: bool = False) -> str:
    """Write the totals, then one line a run: its newest save, and for each environment what it reads of it.

    With `show_all` every run is there, with the reasons, the ways out, and what is broken.
    """
    return "\n".join(_scan_lines(scanned, lines, now, show_all=show_all)) or "no checkpoints were found"


def describe_show(
    scanned: Scanned,
    now: datetime,
    measured: MeasuredReleases = PACKAGED,
    contents: Mapping[str, Contents | str] | None = None,
) -> str:
    """Describe each checkpoint, the newest of a run first: a screen of it, or with `contents` all."""
    lines: list[str] = []
    parts = [
        (part, save) for run in scanned.runs for save in reversed(run.saves) for part in save.parts
    ]  # fmt: skip
    for at, (part, save) in enumerate(parts):
        told = list(_part_lines(part, save, scanned, now, measured))
        if contents is None and lines and len(lines) + len(told) > _SCREEN:
            lines.append(f"and {count(len(parts) - at, 'more checkpoint')}: name one, or --json has all")
            break
        lines += told
        lines += _describe_contents((contents or {}).get(part.path))
    return "\n".join(lines) or "no checkpoints were found"


def _describe_contents(contents: Contents | str | None) -> Iterator[str]:
    if isinstance(contents, str):
        yield f"  its tensors cannot be listed: {contents}"
    elif contents is not None:
        for name, form in contents.tensors.items():
            yield f"  {escape_name(name)}: {form}"
        for name in sorted(contents.objects):
            yield f"  {escape_name(name)}: no tensor"


def _encode_contents(contents: Contents | str | None) -> dict[str, Any]:
    if contents is None:
        return {}
    if isinstance(contents, str):
        return {"contents": None}
    tensors = {
        name: {"shape": list(form.shape), "dtype": form.dtype} for name, form in contents.tensors.items()
    }
    return {"contents": {"tensors": tensors, "objects": sorted(contents.objects)}}


def describe_kept(keeping: Keeping, environments: Sequence[Environment]) -> str:
    """Describe what was kept, for whom, and what guards it."""
    kept = keeping.kept
    size = f"{count(keeping.files, 'file')}, {describe_size(keeping.bytes)}"
    lines = [f"{make_printable(kept.path)} is kept: {size}, {kept.digest}"]
    names = [str(environment) for environment in environments if environment.number in kept.readable_by]
    lines.append(f"  readable by {', '.join(names)}" if names else "  no environment here reads it")
    if kept.copy:
        how = "/".join(sorted(transfer.value for transfer in keeping.carried)) or "already copied"
        lines.append(f"  copy: {make_printable(kept.copy)} ({how})")
        if Transfer.LINKED in keeping.carried:
            lines.append(
                "  hard links are the same files: a program that writes into the original changes both"
            )
    else:
        lines.append("  protected by its hashes only: `torchenv checkpoints verify` notices a change,")
        lines.append(
            f"  `torchenv checkpoints keep --copy {make_printable(kept.path)}` keeps a copy of the bytes"
        )
    return "\n".join(lines)


def describe_newer(path: str, readers: Iterable[int], runs: Iterable[Run]) -> str | None:
    """Describe that all who read a kept save read a newer one of its run, too; None where they do not."""
    run = next((run for run in runs if path.startswith(f"{run.path}/")), None)
    if run is None:
        return None
    name = path.removeprefix(f"{run.path}/")
    newer = [(behind(run.newest_readable.get(number), name) or 0, number) for number in readers]
    steps, number = min(newer, default=(0, 0))
    if steps <= 0:
        return None
    return (
        f"{make_printable(path)} is {count(steps, 'step')} behind"
        f" {make_printable(run.newest_readable[number])}, which environment {number} reads too"
    )


def encode_verified(kept: Sequence[Kept], changes: Sequence[KeptChange]) -> dict[str, Any]:
    """Return the `torchenv.kept-verify/1` document."""
    return {
        "schema": "torchenv.kept-verify/1",
        "kept": [as_json(item) for item in kept],
        "changes": [{"path": change.path, "file": change.file, "what": change.what} for change in changes],
    }


def describe_verified(kept: Sequence[Kept], changes: Sequence[KeptChange]) -> str:
    """Describe what has changed since it was kept."""
    if not kept:
        return "nothing is kept; see `torchenv help checkpoints keep`"
    changed = {change.path for change in changes}
    lines = [f"{make_printable(one.path)}: unchanged" for one in kept if not {one.path, one.copy} & changed]
    lines += map(str, changes)
    for one in kept:
        if one.copy and one.path in changed and one.copy not in changed:
            lines.append(f"{make_printable(one.path)}: its copy {make_printable(one.copy)} is unchanged")
    return "\n".join(lines)


def encode_copied(
    copies: Sequence[Copied], refused: Sequence[str], proofs: Sequence[CopyProof] = ()
) -> dict[str, Any]:
    """Return the `torchenv.downgrade/1` document."""
    return {
        "schema": "torchenv.downgrade/1",
        "copies": [
            {
                "source": copy_.source,
                "copy": copy_.copy,
                "made": copy_.made,
                "why": copy_.why,
                "metadata_bytes": copy_.metadata,
                "files": copy_.files,
                "carried": sorted(how.value for how in copy_.carried),
            }
            for copy_ in copies
        ],
        "refused": list(refused),
        "proofs": [
            {
                "copy": proof.copy,
                "original_torch": proof.original_torch,
                "copy_torch": proof.copy_torch,
                "tensors": proof.tensors,
                "differences": list(proof.differences),
            }
            for proof in proofs
        ],
    }


def describe_copied(
    copies: Sequence[Copied], refused: Sequence[str], proofs: Sequence[CopyProof] = ()
) -> str:
    """Describe which copies were made and how."""
    lines = []
    for copied in copies:
        if copied.made:
            how = "/".join(sorted(transfer.value for transfer in copied.carried)) or "copied"
            size = f"{copied.metadata} bytes of metadata rewritten, {count(copied.files, 'file')} {how}"
            copy, source = make_printable(copied.copy), make_printable(copied.source)
            lines.append(f"{copy}: copied from {source}; original unchanged; {size}")
            if Transfer.LINKED in copied.carried:
                lines.append("  hard links are the same files: a program that writes into one changes both")
            lines += _describe_pointers(copied.pointers)
        else:
            there = f" to {make_printable(copied.copy)}" if copied.copy != copied.source else ""
            lines.append(f"{make_printable(copied.source)}: nothing to do, {copied.why}{there}")
    lines += [f"not copied: {reason}" for reason in refused]
    for proof in proofs:
        if proof.differences:
            lines.append(f"{make_printable(proof.copy)}: NOT equal: {some(proof.differences)}")
        else:
            tensors = count(proof.tensors, "tensor")
            lines.append(
                f"proved: the copy in torch {proof.copy_torch} equals the original in torch"
                f" {proof.original_torch}, bit for bit, {tensors} compared; original unchanged"
            )
    return "\n".join(lines) or "there is nothing to downgrade"


def encode_gate(gate: Gate, target: str) -> dict[str, Any]:
    """Return the `torchenv.gate/1` document."""
    return {
        "schema": "torchenv.gate/1",
        "readable_by": target,
        "runs": gate.runs,
        "findings": [
            {"code": finding.code, "path": finding.path, "message": finding.message}
            for finding in gate.findings
        ],
    }


def describe_gate(gate: Gate, target: str) -> str:
    """Describe what is held back, or that nothing is."""
    if gate.findings:
        return "\n".join(map(str, gate.findings))
    return f"torch {target} reads the newest complete save of {count(gate.runs, 'run')}"


def encode_contents_diff(before: str, after: str, diff: ContentsDiff) -> dict[str, Any]:
    """Return the `torchenv.checkpoints-diff/1` document."""

    def encode(form: TensorForm) -> dict[str, Any]:
        return {"shape": list(form.shape), "dtype": form.dtype}

    return {
        "schema": "torchenv.checkpoints-diff/1",
        "from": before,
        "to": after,
        "only_from": list(diff.only_before),
        "only_to": list(diff.only_after),
        "changed": [
            {"name": name, "from": encode(ours), "to": encode(theirs)} for name, ours, theirs in diff.changed
        ],
        "same": diff.same,
        "schemes": list(diff.schemes),
    }


def describe_contents_diff(before: str, after: str, diff: ContentsDiff) -> str:
    """Describe in what two checkpoints differ, a screen of it at most."""
    names = (("-", before, diff.only_before), ("+", after, diff.only_after))
    lines = [f"{count(diff.same, 'name')} the same in both"]
    lines += [f"schemes: {scheme}" for scheme in diff.schemes]
    for sign, where, only in names:
        if only:
            lines.append(f"only in {escape_name(where)}: {len(only)}")
            lines += [f"  {sign} {escape_name(name)}" for name in only[:_SHOWN]]
            if len(only) > _SHOWN:
                lines.append(f"  and {len(only) - _SHOWN} more (--json has all)")
    if diff.changed:
        lines.append(f"of another shape or dtype: {len(diff.changed)}")
        lines += [
            f"  {escape_name(name)}: {ours} -> {theirs}" for name, ours, theirs in diff.changed[:_SHOWN]
        ]
        if len(diff.changed) > _SHOWN:
            lines.append(f"  and {len(diff.changed) - _SHOWN} more (--json has all)")
    return "\n".join(lines)


def encode_converted(converted: Converted) -> dict[str, Any]:
    """Return the `torchenv.convert/1` document."""
    return {
        "schema": "torchenv.convert/1",
        "source": converted.source,
        "target": converted.target,
        "form": converted.form,
        "torch": converted.torch,
        "tensors": converted.tensors,
        "bytes": converted.bytes,
        "left_out": list(converted.left_out),
    }


def describe_converted(converted: Converted) -> str:
    """Describe what was written, and what the other form cannot hold."""
    size = f"{count(converted.tensors, 'tensor')}, {describe_size(converted.bytes)}"
    lines = [f"{converted.target}: {size}, written by torch {converted.torch} and verified tensor by tensor"]
    if converted.left_out:
        values = count(len(converted.left_out), "value")
        lines.append(f"  left out, as safetensors holds tensors only: {values}: {some(converted.left_out)}")
    return "\n".join(lines)


def encode_repaired(repaired: Repaired) -> dict[str, Any]:
    """Return the `torchenv.repair/1` document."""
    return {
        "schema": "torchenv.repair/1",
        "source": repaired.source,
        "copy": repaired.copy,
        "added": list(repaired.added),
        "torch": repaired.torch,
    }


def describe_repaired(repaired: Repaired) -> str:
    """Describe the copy, and what it holds that its original lacks."""
    return "\n".join(
        (
            f"{repaired.copy}: copied from {repaired.source}; original unchanged",
            f"  added: {some(repaired.added)}",
            f"  every tensor compared in torch {repaired.torch}",
            *_describe_pointers(repaired.pointers),
        )
    )


def _describe_pointers(pointers: Sequence[CopyPointer]) -> Iterator[str]:
    for pointer in pointers:
        content = f"names {make_printable(pointer.content)}" if pointer.content else "cannot be read as one"
        if pointer.written:
            yield f"  wrote {pointer.path}, which now {content}"
        else:
            yield f"  left {pointer.path} as it was: it {content}"


def _scan_lines(scanned: Scanned, lines: Sequence[Run], now: datetime, *, show_all: bool) -> Iterator[str]:
    if not scanned.runs:
        return
    recorded = {line.path: line for line in lines}
    # A folder of nothing but torchenv's own copies is no run.
    runs = [run for run in scanned.runs if run.path in recorded]
    saves = [save for run in runs for save in run.saves if not save.copy_kind]
    whole = sum(save.complete for save in saves)
    yield f"{count(len(saves), 'save')} in {count(len(runs), 'run')}: {whole} complete"
    shown = runs if show_all else runs[:RUNS_SHOWN]
    rows = [_scan_row(run, recorded[run.path], scanned) for run in shown]
    if not show_all:
        yield columns(rows)
        yield from count_hidden(0, len(runs) - len(shown))
        if whole < len(saves):
            yield f"{count(len(saves) - whole, 'save')} not complete (see --all)"
    else:
        for run, row in zip(shown, columns(rows).splitlines(), strict=True):
            yield row
            yield from _explain_run(run, recorded[run.path], scanned, now)
    yield from _describe_foreign(scanned)


def _scan_row(run: Saves, line: Run, scanned: Scanned) -> tuple[str, ...]:
    """Write a run with its saves and, for each environment, the newest that it reads and the lag."""
    name, newest, *marks = describe_run_row(line, scanned.judge.environments)
    return (name, _count_saves(run), newest, *marks)


def _explain_run(run: Saves, line: Run, scanned: Scanned, now: datetime) -> Iterator[str]:
    """Describe what each environment cannot read, why, and what to do, and what of the run is broken."""
    for environment in scanned.judge.environments:
        # Broken ones are told of below, with their reasons.
        yield from (f"  {item}" for item in describe_run(replace(line, broken=(), writing=()), environment))
    broken = [part for save in run.saves for part in save.parts if not part.complete]
    for part in broken[-_MOST:]:
        said = "; ".join(message for _, message in _problems(part, now))
        yield f"  {escape_name(part.path)}: {describe_state(part.found.state)}: {said}"
    if len(broken) > _MOST:
        yield f"  and {len(broken) - _MOST} more that are not complete"


def _describe_foreign(scanned: Scanned) -> Iterator[str]:
    """Describe what is not opened, and the packages whose classes decide who reads a file."""
    foreign: list[Part] = []
    own: dict[str, set[str]] = {}  # files that hold classes of a package, by its name
    parts = (part for run in scanned.runs for save in run.saves for part in save.parts)
    for part in (part for part in parts if part.found.foreign):
        if any(map(runs_code, part.found.foreign)):
            foreign.append(part)
        else:
            for name in part.found.foreign:
                own.setdefault(name.partition(".")[0], set()).add(part.path)
    for part in foreign[-_MOST:]:
        names = ", ".join(map(escape_name, part.found.foreign[:_MOST]))
        yield f"{escape_name(part.path)}: not opened: it would import {names}, which no release writes"
    if len(foreign) > _MOST:
        yield f"and {len(foreign) - _MOST} more that would import names that no release writes"
    for package, paths in list(own.items())[:_MOST]:
        classes = f"classes of `{escape_name(package)}`: whether an environment reads them is unknown"
        yield f"{count(len(paths), 'file')} with {classes}"
    if len(own) > _MOST:
        yield f"classes of {len(own) - _MOST} more packages (--json has all)"


def _count_saves(run: Saves) -> str:
    copies = sum(1 for save in run.saves if save.copy_kind)
    saves = count(len(run.saves) - copies, "save")
    made = "1 copy" if copies == 1 else f"{copies} copies"
    return ", ".join(said for said, number in ((saves, len(run.saves) - copies), (made, copies)) if number)


def _part_lines(
    part: Part, save: Save, scanned: Scanned, now: datetime, measured: MeasuredReleases
) -> Iterator[str]:
    found = part.found
    reader = scanned.judge.reader(found)
    step = f", step {save.step}" if save.step is not None else ""
    holds = f", {count(found.tensors, 'tensor')}" if found.tensors is not None else ""
    copied = f" ({save.copy_kind} copy)" if save.copy_kind else ""
    size, state = describe_size(found.bytes), describe_state(found.state)
    yield f"{escape_name(part.path)}: {found.format}, {state}{step}{holds}, {size}{copied}"
    for _, message in _problems(part, now):
        yield f"  {state}: {message}" if not part.complete else f"  note: {message}"
    if found.foreign:
        yield f"  not opened; foreign names: {some(found.foreign)}"
    oldest = f"torch {reader.torch.oldest} and newer" if reader.torch.oldest else "torch: not known"
    newest = f", up to {reader.torch.newest}" if reader.torch.newest else ""
    python = f", Python {reader.python_min} and newer" if reader.python_min else ""
    packages = "".join(f", {names}{needed}" for names, needed in reader.packages if needed)
    system = f", on {reader.system} only" if reader.system else ""
    everything = f"{oldest}{newest}{python}{packages}{system}"
    nobody = "no release: it cannot be read back" if reader.nobody else everything
    certainty = measured.certainty(reader, scanned.judge.environments)
    is_sure = certainty == reader.certainty
    limit = "" if is_sure else f": no release after torch {measured.rules.newest} was measured"
    yield f"  read by {nobody} ({certainty}{limit})"
    yield from (f"    {note.message}" for note in reader.because)
    for environment in scanned.judge.environments:
        judged = scanned.judge.of(found, environment)
        way = f": {_describe_code(reader)}" if judged == "readable-with-code" else ""
        yield f"  environment {environment}: {judged}{way}"


def _describe_code(reader: Reader) -> str:
    """Describe how `torch.load` reads what its default refuses."""
    ways = []
    if reader.imports:
        ways.append(f"import {', '.join(reader.imports)} first")
    if reader.allow:
        names = ", ".join(map(_describe_allowed, reader.allow))
        ways.append(f"call `torch.serialization.add_safe_globals([{names}])`")
    return f"{' and '.join(ways)}, or use weights_only=False" if ways else "use weights_only=False"


def _describe_allowed(name: str) -> str:
    # numpy's functions know themselves by another module than the file does.
    is_moved = name.startswith(("numpy.core.", "numpy._core."))
    return f'({escape_name(name)}, "{escape_name(name)}")' if is_moved else escape_name(name)


def _entry(
    part: Part, save: Save, run: str, scanned: Scanned, *, now: datetime, measured: MeasuredReleases
) -> dict[str, Any]:
    judge = scanned.judge
    checkpoint = scanned.index.checkpoint(part.path, part.found)
    certainty = measured.certainty(checkpoint.reader, judge.environments)
    checkpoint = replace(checkpoint, reader=replace(checkpoint.reader, certainty=certainty))
    modified = _find_modified(part)
    return {
        **checkpoint.as_json(),
        "problems": [{"code": code, "message": message} for code, message in _problems(part, now)],
        "step": save.step,
        "modified": modified.isoformat(timespec="seconds").replace("+00:00", "Z") if modified else None,
        "run": run,
        "kept": part.path in scanned.kept,
        "copied": save.copy_kind or None,
        "environments": {
            str(environment.number): judge.of(part.found, environment) for environment in judge.environments
        },
    }


def _problems(part: Part, now: datetime) -> list[tuple[str, str]]:
    problems = [(code, message) for code, message in part.found.problems]
    modified = _find_modified(part)
    if part.found.state == "incomplete" and modified and timedelta() <= now - modified < _FRESH:
        age = int((now - modified).total_seconds())
        problems.append(("in-progress", f"its files changed {age} s ago: the save may still be running"))
    return problems


def _find_modified(part: Part) -> datetime | None:
    modified = part.modification_ns
    # An object store's marks of change are no times; those of a file system are of this century.
    return datetime.fromtimestamp(modified / 1e9, UTC) if modified > 0 else None
