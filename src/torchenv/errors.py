"""What can go wrong, one class for each thing a user would do about it."""


class TorchenvError(Exception):
    """The root of every error that a user can act on; anything else is a defect in torchenv.

    The message says what is wrong and where, in one line; the hint says what to do about it.
    """

    exit_code = 70

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message


class InputError(TorchenvError):
    """A flag, a profile, a host file, a catalogue or a lock is wrong: mend the input."""

    exit_code = 2


class NothingSuits(TorchenvError):
    """Nothing fits, or only something that the user must decide: read the reasons and choose."""

    exit_code = 3


class PackagesConflict(NothingSuits):
    """Packages want what does not go together: loosen what is asked of one, or leave it out.

    `packages` are the normalised names that the installer gave with its reason.
    """

    def __init__(
        self, message: str, *, hint: str | None = None, packages: frozenset[str] = frozenset()
    ) -> None:
        super().__init__(message, hint=hint)
        self.packages = packages


class ToolFailed(TorchenvError):
    """A program or a service did not do its work: uv, pip, an index, an interpreter."""

    exit_code = 4


class IndexFailed(ToolFailed):
    """An index does not answer, lets nobody in, or lacks something: mend the way to it, or name another.

    `silent` is the address from which no answer came, where that is known.
    """

    def __init__(self, message: str, *, hint: str | None = None, silent: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.silent = silent


class IndexUnreachable(IndexFailed):
    """No answer came from an index: check the network, or name a mirror.

    `why` is the reason alone; `is_slow` says that an answer had begun to come.
    """

    def __init__(self, address: str, why: str, *, is_slow: bool = False) -> None:
        hint = "check the network and its proxy, or name a mirror with TORCHENV_TORCH_INDEX"
        super().__init__(f"the index at {address} cannot be reached: {why}", hint=hint, silent=address)
        self.why = why
        self.is_slow = is_slow


class Unobtainable(IndexFailed):
    """A package cannot be had as it was asked for: ask for another version of it, or leave it out.

    `page` is the address of what the index says of it, where that is known; `packages` are the normalised
    names of the package and of who asks for it.
    """

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        page: str | None = None,
        packages: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(message, hint=hint)
        self.page = page
        self.packages = packages


class WorkspaceError(TorchenvError):
    """The workspace is not as its manifest says, or another run holds it."""

    exit_code = 5
