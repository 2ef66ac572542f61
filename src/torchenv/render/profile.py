"""A profile as people would write it, from what a project's own files say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torchenv.packages.layouts import Proposal
from torchenv.system.documents import toml


def write_profile(proposal: Proposal, source: str) -> str:
    """Return the text of a `torchenv.toml`; `source` is the file that it was made from."""
    return "\n".join(_lines(proposal, source)) + "\n"


def _lines(proposal: Proposal, source: str) -> Iterator[str]:
    yield f"# Made from {source} by `torchenv init`: check the targets, then run `torchenv lock`."
    yield from (f"# Left out: {said}" for said in proposal.left_out)
    yield "schema = 1"
    yield f"name = {toml(proposal.name)}"
    yield from _section("[torch]", {"version": proposal.torch, "packages": proposal.family})
    packages = {
        "requirements": proposal.requirements,
        "constraints": proposal.constraints,
        "from": proposal.files,
        "editable": proposal.editable,
    }
    yield from _section("[packages]", packages)
    yield from _section("[index]", {"torch": proposal.torch_index, "packages": proposal.packages_index})
    for url, names in proposal.private.items():
        yield from _section("[[index.private]]", {"url": url, "packages": names})
    for target in proposal.targets:
        said = {
            "name": target.name,
            "platform": target.platform,
            "python": proposal.python,
            "backend": target.backend,
            "extras": target.extras,
        }
        yield from _section("[[target]]", said)


def _section(head: str, values: Mapping[str, Any]) -> Iterator[str]:
    given = {key: value for key, value in values.items() if value}
    if given:
        yield from ("", head)
        for key, value in given.items():
            yield f"{key} = {_by_line(value)}"


def _by_line(value: object) -> str:
    if isinstance(value, list) and len(value) > 3:
        return "[\n" + "".join(f"    {toml(member)},\n" for member in value) + "]"
    return toml(value)
