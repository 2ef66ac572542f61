"""What a compiled extension needs at load time, read from its ELF tables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, BinaryIO

from torchenv.system.values import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

_MAGIC = b"\x7fELF"


@frozen
class Native:
    """The libraries it needs, where it looks for them, and the symbols of lost libraries that it lacks."""

    needed: tuple[str, ...] = ()
    search: tuple[str, ...] = ()
    undefined: tuple[str, ...] = ()


def read_native(stream: BinaryIO, libraries: Sequence[str]) -> Native | None:
    """Read a shared library; None where the file is not ELF or not linked dynamically.

    `libraries` are those whose symbols matter, such as `curand`; without a word of them it needs nothing.

    Raises `ValueError` where the tables are damaged. Only the dynamic tables are read, however
    large the file is.
    """
    if stream.read(4) != _MAGIC:
        return None
    from elftools.common.exceptions import ELFError
    from elftools.construct import ConstructError
    from elftools.elf.elffile import ELFFile

    try:
        return _read(ELFFile(stream), libraries)
    except (ELFError, ConstructError, UnicodeDecodeError, OverflowError, TypeError) as error:
        raise ValueError(f"damaged ELF file: {error}") from None


def _read(elf: Any, libraries: Sequence[str]) -> Native | None:
    dynamic = next((s for s in elf.iter_segments() if s["p_type"] == "PT_DYNAMIC"), None)
    if dynamic is None:
        return None
    # Every name that matters stands in one table of strings; without the word in it, all is said.
    strings = _strings(elf, dynamic)
    if not any(library.encode() in strings for library in libraries):
        return Native()
    tags = list(dynamic.iter_tags())
    needed = tuple(tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED")
    search = tuple(
        path
        for tag in tags
        if tag.entry.d_tag in {"DT_RPATH", "DT_RUNPATH"}
        for path in (getattr(tag, "rpath", None) or tag.runpath).split(":")
    )
    # A function of a library is named for it and goes on with a capital: curandCreateGenerator.
    symbols = re.compile(rf"(?:{'|'.join(map(re.escape, libraries))})[A-Z]")
    table = elf.get_section_by_name(".dynsym") or dynamic
    undefined = tuple(
        symbol.name
        for symbol in table.iter_symbols()
        if symbol["st_shndx"] == "SHN_UNDEF"
        and symbol["st_info"]["bind"] != "STB_WEAK"
        and symbols.match(symbol.name)
    )
    return Native(needed, search, undefined)


def _strings(elf: Any, dynamic: Any) -> bytes:
    table = {tag.entry.d_tag: tag.entry.d_val for tag in dynamic.iter_tags()}
    address, size = table.get("DT_STRTAB"), table.get("DT_STRSZ")
    if address is None or size is None:
        return b""
    offset = next(iter(elf.address_offsets(address)), None)
    if offset is None:
        return b""
    elf.stream.seek(offset)
    content: bytes = elf.stream.read(size)
    return content
