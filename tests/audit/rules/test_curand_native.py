"""Compiled libraries that need cuRAND, told by small libraries made here byte by byte."""

from __future__ import annotations

import struct
from collections.abc import Callable
from io import BytesIO

import pytest

from torchenv.audit import Breakages, Unread, audit_native
from torchenv.audit.native import read_native

Found = Callable[[str, str, str | bytes], list[str]]
NEEDED, STRTAB, SYMTAB, STRSZ, SYMENT, RUNPATH = 1, 5, 6, 10, 11, 29


def library(*, needed: tuple[str, ...] = (), undefined: tuple[str, ...] = (), runpath: str = "") -> bytes:
    """Make a 64-bit ELF library with a dynamic segment and a table of symbols, and no code."""
    names = bytearray(b"\0")

    def name(text: str) -> int:
        names.extend(text.encode() + b"\0")
        return len(names) - len(text) - 1

    tags = [(NEEDED, name(library)) for library in needed]
    tags += [(RUNPATH, name(runpath))] if runpath else []
    # An undefined function: global, in no section.
    symbols = b"\0" * 24 + b"".join(
        struct.pack("<IBBHQQ", name(symbol), 0x12, 0, 0, 0, 0) for symbol in undefined
    )
    start = 64 + 2 * 56
    symbols_at = start + 16 * (len(tags) + 5)
    names_at = symbols_at + len(symbols)
    tags += [(STRTAB, names_at), (STRSZ, len(names)), (SYMTAB, symbols_at), (SYMENT, 24), (0, 0)]
    dynamic = b"".join(struct.pack("<QQ", *tag) for tag in tags)
    sections_at = names_at + len(names) + len(SECTIONS)
    total = sections_at + 4 * 64
    header = b"\x7fELF\x02\x01\x01" + b"\0" * 9
    header += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, sections_at, 0, 64, 56, 2, 64, 4, 3)
    load = struct.pack("<IIQQQQQQ", 1, 4, 0, 0, 0, total, total, 4096)
    pointer = struct.pack("<IIQQQQQQ", 2, 4, start, start, start, len(dynamic), len(dynamic), 8)
    sections = b"\0" * 64
    sections += section(1, 11, symbols_at, len(symbols), link=2, entry=24)
    sections += section(9, 3, names_at, len(names))
    sections += section(17, 3, names_at + len(names), len(SECTIONS))
    return header + load + pointer + dynamic + symbols + bytes(names) + SECTIONS + sections


SECTIONS = b"\0.dynsym\0.dynstr\0.shstrtab\0"


def section(name: int, kind: int, at: int, size: int, *, link: int = 0, entry: int = 0) -> bytes:
    return struct.pack("<IIQQQQIIQQ", name, kind, 2, at, at, size, link, 1, 8, entry)


def test_a_library_that_needs_curand_and_does_not_say_where_is_an_error(found: Found) -> None:
    content = library(needed=("libc.so.6", "libcurand.so.10"))
    assert found("curand-native", "mine.so", content) == ["1:1 error"]


def test_a_library_that_says_where_is_a_warning_with_the_place(breakages: Breakages) -> None:
    content = library(needed=("libcurand.so.10",), runpath="$ORIGIN/../nvidia/cu13/lib")
    (finding,) = read(content, breakages)
    assert finding == (
        "warning: it needs libcurand.so.10, and torch 2.15.0 neither brings nor loads cuRAND;"
        " it searches $ORIGIN/../nvidia/cu13/lib"
    )


def test_symbols_left_to_another_library_are_an_error(breakages: Breakages) -> None:
    content = library(needed=("libc.so.6",), undefined=("malloc", "curandCreateGenerator"))
    (finding,) = read(content, breakages)
    assert finding == (
        "error: it leaves curandCreateGenerator to whoever loaded cuRAND before it;"
        " torch 2.15.0 neither brings nor loads cuRAND"
    )


def test_a_version_in_the_file_name_is_another_name_for_a_library(found: Found) -> None:
    content = library(needed=("libcurand.so.10",))
    assert found("curand-native", "libmine.so.1.2", content) == ["1:1 error"]


def test_a_copy_of_ones_own_is_right(found: Found) -> None:
    content = library(needed=("libcurand-5ac0a2fd.so.10",), undefined=("curandCreateGenerator",))
    assert found("curand-native", "mine.so", content) == []


def test_device_code_needs_no_library(found: Found) -> None:
    content = library(needed=("libc.so.6",), undefined=("curand_init", "curandy"))
    assert found("curand-native", "mine.so", content) == []


def test_a_file_that_is_not_elf_is_passed_over(found: Found) -> None:
    assert found("curand-native", "mine.so", b"!<arch>\n") == []


@pytest.mark.parametrize("kept", [5, 20, 63, 100])
def test_a_library_cut_short_is_told_and_stops_nothing(breakages: Breakages, kept: int) -> None:
    result = audit_native("mine.so", BytesIO(library()[:kept]), [breakages])
    assert isinstance(result, Unread)
    assert result.why.startswith("damaged ELF file")


def test_a_library_that_never_says_curand_is_not_read_further() -> None:
    native = read_native(BytesIO(library(needed=("libc.so.6",), undefined=("malloc",))), ["curand"])
    assert native is not None
    assert native.needed == ()


def read(content: bytes, breakages: Breakages) -> list[str]:
    result = audit_native("mine.so", BytesIO(content), [breakages])
    assert not isinstance(result, Unread)
    return [f"{item.severity}: {item.why}" for item in result]
