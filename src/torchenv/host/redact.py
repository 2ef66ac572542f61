"""Takes serial numbers and UUIDs out of evidence, so that a host file can be shown to anyone."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from torchenv.host.model import Evidence

_UUID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE)

# AMD's runtime writes the number that the kernel calls `unique_id` as GPU- and sixteen digits.
_AMD_UUID = re.compile(r"\bGPU-([0-9a-f]{16})\b", re.IGNORECASE)
_UNIQUE_ID = re.compile(r"^(unique_id) (\d{1,20})$", re.MULTILINE)

_SERIAL = re.compile(r"(serial[\w \"]*(?:[:=]|\">|>)\s*\"?)([0-9a-zx][\w-]*)", re.IGNORECASE)

# A UUID in a mask may be cut short, as long as it is the only one that begins so.
_SHORT = re.compile(r"\b(GPU-|MIG-)([0-9a-f][0-9a-f-]{3,})", re.IGNORECASE)


def mask_evidence(evidence: Iterable[Evidence]) -> tuple[Evidence, ...]:
    """Number the identifiers in the order in which they come.

    The same one gets the same number everywhere, so what refers to a device still does.
    """
    evidence = tuple(evidence)
    uuids: dict[str, str] = {_ZEROS: _ZEROS}
    numbers: dict[int, int] = {0: 0}

    def name(found: re.Match[str]) -> str:
        return uuids.setdefault(found[0].lower(), f"{_ZEROS[:-12]}{len(uuids):012d}")

    def number(value: int) -> int:
        return numbers.setdefault(value, len(numbers))

    def mask(text: str) -> str:
        text = _UUID.sub(name, text)
        text = _AMD_UUID.sub(lambda found: f"GPU-{number(int(found[1], 16)):016x}", text)
        text = _UNIQUE_ID.sub(lambda found: f"{found[1]} {number(int(found[2]))}", text)
        return _SERIAL.sub(lambda found: found[1] + re.sub(r"\w", "0", found[2]), text)

    def lengthen(found: re.Match[str]) -> str:
        known = [*uuids, *(f"{value:016x}" for value in numbers)]
        full = [item for item in known if item.startswith(found[2].lower())]
        return f"{found[1]}{full[0]}" if len(full) == 1 else found[0]

    # The variables come last: they refer to devices that the others name.
    texts = {item.source: mask(item.text) for item in evidence if not item.source.startswith("$")}
    for item in evidence:
        if item.source.startswith("$"):
            texts[item.source] = mask(_SHORT.sub(lengthen, item.text))
    return tuple(replace(item, text=texts[item.source]) for item in evidence)


_ZEROS = "00000000-0000-0000-0000-000000000000"
