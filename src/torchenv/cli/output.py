"""The one place that prints: results on stdout, what people read meanwhile on stderr."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from typing import Any, TextIO

    from torchenv.cli.progress import ProgressBar, ProgressLines
    from torchenv.errors import TorchenvError

_NOTHING: Mapping[str, str] = {}


class Output:
    """The streams of one run. A stream that is closed or full never stops the work: it is remembered.

    With `is_json` results are one JSON document, with `is_quiet` nothing is said but results and errors, with
    `is_verbose` the programs that run are named. `program` is what commands in messages begin with, so that
    they find the same workspace. `failure` is what kept a result from being written.
    """

    def __init__(
        self, stdout: TextIO | None, stderr: TextIO | None, environ: Mapping[str, str] = _NOTHING
    ) -> None:
        self._stdout, self._stderr, self._environ = stdout, stderr, environ
        self.is_json = self.is_quiet = self.is_verbose = False
        self.program = "torchenv"
        self._progress: ProgressBar | ProgressLines | None = None
        self.failure: OSError | None = None
        self._has_reader = stdout is not None
        self._has_document = False

    def print(self, text: str) -> None:
        """Print a result."""
        if not self._has_reader or self._stdout is None:
            return
        try:
            print(_make_harmless(text, self._stdout), file=self._stdout)
        except BrokenPipeError:
            # Who read it has seen enough; the exit code is still to be earned.
            self._has_reader = False
        except OSError as error:
            self._has_reader, self.failure = False, error

    def print_document(self, document: Mapping[str, Any]) -> None:
        """Print a document, in ASCII: no encoding of a terminal stands in its way."""
        import json

        self._has_document = True
        self.print(json.dumps(document, indent=2))

    def print_written(self, text: str) -> None:
        """Print a result that is a document of some form already."""
        self._has_document = True
        self.print(text)

    def show(self, text: Callable[[], str], document: Callable[[], Mapping[str, Any]]) -> None:
        """Print a result in the form that was asked for."""
        if self.is_json:
            self.print_document(document())
        else:
            shown = text()
            if shown:
                self.print_text(shown)

    def print_text(self, text: str) -> None:
        """Print a result for people, who may read it on a narrow terminal."""
        self.print(self._wrap(self._name_workspace(text), self._stdout))

    def report(self, text: str) -> None:
        """Print what an action did, which nobody asked for with `--quiet`."""
        if not self.is_quiet:
            self.print_text(text)

    def say(self, text: str) -> None:
        """Print news for people."""
        if not self.is_quiet:
            self._write_news(text)

    def note(self, text: str) -> None:
        """Print something to know for people."""
        self.say(f"note: {text}")

    def aside(self) -> Output:
        """Return an output whose results are news: for a step of a command that has a result of its own."""
        aside = Output(self._stderr, self._stderr, self._environ)
        aside.is_quiet, aside.program = self.is_quiet, self.program
        return aside

    def explain(self, error: TorchenvError) -> None:
        """Print what went wrong; with `--json` as a document too, unless one is there that says it."""
        self._write_news(f"error: {error.message}")
        for hint in (error.hint or "").splitlines():
            self._write_news(f"hint: {hint}")
        self.print_failure(error.exit_code, error.message, error.hint)

    def print_failure(self, code: int, message: str, hint: str | None = None) -> None:
        """Print the document of a failure, where documents are asked for and none was printed."""
        if self.is_json and not self._has_document:
            hint = hint and self._name_workspace(hint)
            self.print_document(
                {"schema": "torchenv.error/1", "code": code, "message": message, "hint": hint}
            )

    def warn(self, text: str) -> None:
        """Print what people must know even with `--quiet`."""
        self._write_news(text)

    def progress(self, doing: str) -> Callable[[int, int], None]:
        """Return what shows how far something has come, by bytes of all; nothing with `--quiet`."""

        def show(done: int, total: int) -> None:
            if self.is_quiet or not total or self._stderr is None:
                return
            if self._progress is None:
                from torchenv.cli.progress import ProgressBar, ProgressLines

                self._progress = ProgressBar(self._stderr) if self._is_live() else ProgressLines(self.say)
            self._progress.show(doing, done, total)

        return show

    def follow(self, doing: str, count: Callable[[], tuple[int, int]]) -> AbstractContextManager[None]:
        """Show while something is at work how far it is, by the bytes that `count` gives: done and of all.

        Where nothing of all is known, it is shown that it is at work, once that takes long.
        """
        from contextlib import nullcontext

        if self.is_quiet or self._stderr is None:
            return nullcontext()
        from torchenv.cli.progress import follow

        screen = self._stderr if self._is_live() else None
        return follow(doing, count, self.progress(doing), screen, self.say)

    def wait_for(self, doing: str) -> AbstractContextManager[None]:
        """Show while something is at work that it is, once it takes long."""
        return self.follow(doing, lambda: (0, 0))

    def stop_progress(self) -> None:
        """Return the terminal to its state before, whatever is unfinished."""
        if self._progress is not None and hasattr(self._progress, "stop"):
            self._progress.stop()

    def _is_live(self) -> bool:
        """Whether lines can be written over: on a terminal that can move its cursor."""
        stream = self._stderr
        return stream is not None and stream.isatty() and self._environ.get("TERM") != "dumb"

    def flush(self) -> None:
        """Write out what is still to be written to stdout."""
        if self._stdout is None or not self._has_reader:
            return
        try:
            self._stdout.flush()
        except BrokenPipeError:
            self._has_reader = False
        except (OSError, ValueError) as error:
            self._has_reader = False
            self.failure = error if isinstance(error, OSError) else None

    def _name_workspace(self, text: str) -> str:
        """Let the commands that a text names find the workspace of this run, if it was named by `--root`."""
        if self.program == "torchenv" or "`torchenv " not in text:
            return text
        import re

        return re.sub(r"`torchenv (?=[a-z])", lambda _: f"`{self.program} ", text)

    def _wrap(self, text: str, stream: TextIO | None) -> str:
        """Break lines between words where a terminal is narrower; a command to copy stays one line."""
        if stream is None or not stream.isatty():
            return text
        width = find_width(stream, self._environ)
        if not any(len(line) > width for line in text.splitlines()):
            return text
        from textwrap import wrap

        lines: list[str] = []
        for line in text.splitlines():
            indent = line[: len(line) - len(line.lstrip())]
            if len(line) <= width or line.lstrip().startswith(("next: ", "torchenv ")):
                lines.append(line)
            else:
                lines += wrap(
                    line,
                    width,
                    subsequent_indent=f"{indent}    ",
                    break_long_words=False,
                    break_on_hyphens=False,
                )
        return "\n".join(lines)

    def _colour(self, text: str) -> str:
        """Colour the word that says what a line is, where a terminal shows colours and nobody minds."""
        word = text.partition(":")[0]
        if word in _COLOURS and self._stderr is not None and has_colour(self._stderr, self._environ):
            return f"\x1b[{_COLOURS[word]}m{word}:\x1b[0m{text[len(word) + 1 :]}"
        return text

    def _write_news(self, text: str) -> None:
        if self._stderr is None:
            return
        text = self._wrap(_make_harmless(self._name_workspace(text), self._stderr), self._stderr)
        try:
            print(self._colour(text), file=self._stderr)
        except (OSError, ValueError):
            # News that nobody reads any more stops no work.
            self._stderr = None


_COLOURS = {"error": "1;31", "hint": "36", "note": "33", "warning": "33"}


def has_colour(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether colours help here: on a terminal that has them, unless NO_COLOR is set."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def find_width(stream: TextIO, environ: Mapping[str, str]) -> int:
    """Return how many columns a terminal has; 80 where it does not say."""
    named = environ.get("COLUMNS", "")
    if named.isdecimal() and int(named):
        return int(named)
    import os

    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


# Everything that may act on a terminal, but for the end of a line and the tab.
_ACTS = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}


def _make_harmless(text: str, stream: TextIO) -> str:
    """Leave out the login of every address; write for a terminal what acts on it as its number."""
    if "@" in text or "?" in text:
        # Only a text that may hold a login pays for the import.
        from torchenv.system.addresses import mask_logins

        text = mask_logins(text)
    return text.translate(_ACTS) if stream.isatty() else text
