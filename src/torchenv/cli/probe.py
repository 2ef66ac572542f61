"""`torchenv probe`: what this machine has, and how that is known."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from torchenv.cli.context import Context, read_text
from torchenv.errors import InputError
from torchenv.host.model import Host


def options(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("--json", action="store_true", help="print the torchenv.host/1 document")
    parser.add_argument("-o", "--output", metavar="FILE", help="write the document to FILE")
    parser.add_argument(
        "--sysroot", metavar="DIR", help="read DIR/proc, DIR/sys, … in place of this machine's"
    )
    parser.add_argument("--reparse", metavar="FILE", help="understand the evidence of a host file anew")


def run(arguments: Namespace, context: Context) -> int:
    """Look, and print or write what was seen."""
    import json

    host = _host(arguments, context)
    document = json.dumps(host.to_document(), indent=2)
    if arguments.output:
        _write(context.cwd / arguments.output, document)
    elif arguments.json:
        context.out(document)
    else:
        from torchenv.render.host import describe_host

        context.out(describe_host(host))
    return 0


def _host(arguments: Namespace, context: Context) -> Host:
    if arguments.reparse:
        from torchenv.host.probe import reparse

        text = read_text(context.cwd / arguments.reparse, "the host file")
        return reparse(Host.from_json(text, arguments.reparse))
    if arguments.sysroot:
        sysroot = context.cwd / arguments.sysroot
        if not sysroot.is_dir():
            raise InputError(f"--sysroot {arguments.sysroot} is not a directory")
        return context.probe(sysroot=sysroot)
    return context.probe()


def _write(path: Path, document: str) -> None:
    try:
        path.write_text(document + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from None
