"""What a tool printed becomes one line in the user's words, with the remedy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from torchenv.errors import IndexFailed, NothingSuits, PackagesConflict, ToolFailed, Unobtainable
from torchenv.installers import LockRequest
from torchenv.installers.trouble import conflict, explain_failure
from torchenv.system.process import Command, Completed, End

REQUEST = LockRequest(
    requirements=("torch==2.15.0+cu132", "torchvision==0.29.2+cu132"),
    packages=("xformers",),
    torch_index="https://mirror.example/whl/cu132",
    python="3.12",
    platform="linux-x86_64",
)


def failed(text: str) -> Completed:
    return Completed(Command(("uv", "pip", "sync")), 2, "", text)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            (
                "error: Failed to install: torch-2.15.0-cp312.whl (torch==2.15.0)\n"
                "  cause: failed to write `libtorch.so`: No space left on device (os error 28)\n"
            ),
            "could not build it: no space left on the disk",
            "free some space, or set UV_CACHE_DIR and the workspace (`--root`) to a disk that has more",
        ),
        (
            (
                "error: Failed to download `torch==2.15.0`\n"
                "  cause: Size mismatch for `torch==2.15.0`: expected 999 bytes, but downloaded 1000 bytes\n"
            ),
            "torch==2.15.0 is not the file that was locked: expected 999 bytes, got 1000 bytes",
            "find out whether it was damaged on its way or replaced on the index",
        ),
        (
            (
                "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. …\n"
                "    filelock==3.20.0 from http://mirror.example/filelock-3.20.0-py3-none-any.whl"
                " (from -r /t/requirements.txt (line 2)):\n"
                "        Expected sha256 0ab7\n             Got        6ab7\n"
            ),
            "filelock==3.20.0 is not the file that was locked: expected sha256 0ab7, got 6ab7",
            "find out whether it was damaged on its way or replaced on the index",
        ),
        (
            (
                "error: Failed to fetch: `https://mirror.example/whl/cu132/torch/`\n"
                "  cause: HTTP status client error (401 Unauthorized) for url (https://mirror.example/…)\n"
            ),
            "the index at https://mirror.example/whl/cu132/torch/ asks for a login (401 Unauthorized)",
            (
                "write `machine mirror.example login NAME password TOKEN` into ~/.netrc,"
                " or store the login in keyring"
            ),
        ),
        (
            (
                "error: Failed to fetch: `https://mirror.example/whl/cu132/torch/`\n"
                "  cause: HTTP status server error (503 Service Unavailable) for url (https://…)\n"
            ),
            "https://mirror.example/whl/cu132/torch/ answered 503 Service Unavailable",
            "try again later",
        ),
        (
            (
                "error: Request failed after 1 retry in 5.1s\n"
                "  cause: Failed to fetch: `https://mirror.example/simple/numpy/`\n"
                "  cause: client error (Connect)\n  cause: operation timed out\n"
            ),
            "cannot reach https://mirror.example/simple/numpy/: operation timed out",
            (
                "check the network and the proxy, or name a mirror with"
                " TORCHENV_TORCH_INDEX and TORCHENV_PACKAGE_INDEX"
            ),
        ),
        (
            (
                "error: Failed to initialize cache at `/home/u/.cache/uv`\n"
                "  cause: failed to create directory `/home/u/.cache/uv`: Permission denied (os error 13)\n"
            ),
            "the cache /home/u/.cache/uv cannot be made: Permission denied",
            "set UV_CACHE_DIR to a directory that can be written, on a disk with room",
        ),
        (
            (
                "error: No solution found when resolving dependencies\n  cause: Because torch was not found"
                " in the cache and plan depends on torch==2.15.0+cu132, we can conclude …\n"
                "hint: Packages were unavailable because the network was disabled. When the network is …\n"
            ),
            "--offline: the cache does not hold torch",
            "run it once without --offline, or bring UV_CACHE_DIR of a machine that has it",
        ),
        (
            (
                "error: Failed to download `numpy==2.3.0`\n  cause: Network connectivity is disabled, but the"
                " requested data wasn't found in the cache for: `https://mirror.example/numpy.whl`\n"
            ),
            "--offline: the cache does not hold numpy==2.3.0",
            "run it once without --offline, or bring UV_CACHE_DIR of a machine that has it",
        ),
        (
            "Using Python 3.12.1 environment at: env\nerror: something new\n  cause: who knows\n",
            "could not build it: something new cause: who knows",
            "run `uv pip sync` to see all of it",
        ),
        ("", "could not build it: code 2", "run `uv pip sync` to see all of it"),
    ],
)
def test_a_failure_says_what_went_wrong_and_what_to_do(text: str, message: str, hint: str) -> None:
    error = explain_failure(failed(text), "build it", REQUEST)
    assert isinstance(error, ToolFailed)
    assert (str(error), error.hint) == (message, hint)


@pytest.mark.parametrize(
    "text",
    [
        "cause: Failed to fetch: `https://mirror.example/simple/numpy/` cause: operation timed out",
        "cause: Failed to fetch: `https://mirror.example/whl/` cause: HTTP status … (401 Unauthorized) …",
        "cause: Because torch==2.15.0+cu132 has no wheels with a matching Python ABI tag and …",
        "cause: Because there is no version of torch==2.15.0+cu199 and …",
    ],
)
def test_trouble_with_an_index_is_told_apart_for_another_index_might_cure_it(text: str) -> None:
    assert isinstance(explain_failure(failed(f"error: no\n  {text}"), "build it", REQUEST), IndexFailed)


def test_a_tool_that_was_stopped_says_so() -> None:
    done = Completed(Command(("uv", "venv")), 124, "", "", End.OUT_OF_TIME)
    assert str(explain_failure(done, "make it")) == "could not make it: uv did not answer in time"


def test_packages_that_do_not_go_together_are_the_users_to_settle() -> None:
    said = (
        "error: No solution found when resolving dependencies\n"
        "  cause: Because a==1 depends on numpy<2 and b==1 depends on numpy>=2, we can conclude …\n"
    )
    error = explain_failure(failed(said), "choose the packages", REQUEST)
    assert isinstance(error, NothingSuits)
    assert str(error) == "the packages do not fit together: a wants numpy<2 and b wants numpy>=2"


# Reasons that are true: the words of uv 0.13 for each situation.

UNSOLVED = "error: No solution found when resolving dependencies\n  cause: "


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "Because all versions of bb depend on numpy>=2.3 and all versions of aa depend on numpy<2.3, we",
            "the packages do not fit together: aa wants numpy<2.3 and bb wants numpy>=2.3",
        ),
        (
            (
                "Because only lightning==2.5.0 is available and lightning==2.5.0 depends on numpy<2, we can"
                " conclude that all versions of lightning depend on numpy<2. And because plan depends on"
                " numpy>=2 and lightning, …"
            ),
            "the packages do not fit together: lightning wants numpy<2 and the plan wants numpy>=2",
        ),
        (
            (
                "Because nosuch was not found in the package registry and all versions of cc depend"
                " on nosuch>2,"
                " we can conclude that all versions of cc cannot be used. And because plan depends on cc, …"
            ),
            "https://mirror.example/simple has no nosuch>2, which cc asks for",
        ),
        (
            "Because only numpy<=2.3.0 is available and plan depends on numpy>=3, we can conclude …",
            "https://mirror.example/simple has no numpy>=3",
        ),
        (
            (
                "Because only the following versions of numpy are available: numpy<=2.2.0 numpy==2.3.0 and"
                " plan depends on numpy>=3, we can conclude …"
            ),
            "https://mirror.example/simple has no numpy>=3",
        ),
        (
            "Because there is no version of numpy==9 and plan depends on numpy==9, we can conclude …",
            "https://mirror.example/simple has no numpy==9",
        ),
        (
            (
                "Because the requested Python version (>=3.12) does not satisfy Python>=3.13 and"
                " scipy==2.0 depends on Python>=3.13, we can conclude …"
            ),
            "the packages do not fit together: scipy needs Python >=3.13, and the plan has Python 3.12",
        ),
        (
            (
                "Because numpy was not found in the package registry and plan depends on numpy, we can …\n\n"
                "hint: An index URL (https://mirror.example/simple) could not be queried due to a"
                " lack of valid"
                " authentication credentials (401 Unauthorized)"
            ),
            "the index at https://mirror.example/simple asks for a login (401 Unauthorized)",
        ),
    ],
)
def test_the_words_of_the_resolver_become_who_asks_for_what(words: str, message: str) -> None:
    request = replace(REQUEST, package_index="https://mirror.example/simple")
    assert str(explain_failure(failed(UNSOLVED + words), "choose the packages", request)) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            (
                "error: Request failed after 1 retry\n  cause: Failed to fetch: `https://mirror.example/torch/`\n"
                "  cause: client error (Connect)\n  cause: invalid peer certificate: UnknownIssuer\n"
            ),
            "the certificate of https://mirror.example/torch/ was issued by an unknown authority",
        ),
        (
            (
                "error: Failed to fetch: `https://mirror.example/torch/`\n"
                "  cause: invalid peer certificate: certificate expired: verification time 1 (UNIX)\n"
            ),
            "the certificate of https://mirror.example/torch/ has expired",
        ),
        (
            (
                "ERROR: Could not install: HTTPSConnectionPool(host='mirror.example'): …"
                " (SSLCertVerificationError("
                "1, '[SSL] certificate verify failed: self-signed certificate'))"
            ),
            "the certificate of the index was issued by an unknown authority",
        ),
        (
            (
                "error: Failed to fetch: `https://mirror.example/torch/`\n"
                "  cause: client error (Connect)\n"
                "  cause: tunnel error: unsuccessful\n"
            ),
            (
                "the index at https://mirror.example/torch/ cannot be reached:"
                " a proxy failed: tunnel error: unsuccessful"
            ),
        ),
        (
            (
                "error: Failed to download `torch==2.15.0+cu132`\n  cause: Failed to extract"
                " archive: torch.whl\n"
                "  cause: unexpected end of file\n"
            ),
            "torch==2.15.0+cu132 arrived incomplete or damaged",
        ),
        (
            "error: failed to write to file `/home/u/.cache/uv/x`: No space left on device (os error 28)\n",
            "could not install: no space left on the disk of `/home/u/.cache/uv/x`",
        ),
        (
            "error: Failed to fetch: `https://files.example/torch-2.15.0.whl`\n  cause: dns error\n",
            (
                "cannot reach https://files.example/torch-2.15.0.whl: dns error;"
                " the pages of mirror.example link to this other host"
            ),
        ),
        (
            "error: Failed to fetch: `https://user:p@ss@mirror.example/torch/`\n  cause: dns error\n",
            "cannot reach https://mirror.example/torch/: dns error",
        ),
    ],
)
def test_what_stood_in_the_way_is_said_as_what_it_is(text: str, message: str) -> None:
    error = explain_failure(failed(text), "install", indexes=("https://mirror.example/whl/cu132",))
    assert str(error) == message


def test_only_the_side_that_contradicts_the_plan_is_named() -> None:
    said = (
        "Because torchvision==0.29.2+cu132 depends on torch>=2.14.0 and all versions of xformers"
        " depend on torch==2.14.1, we can conclude …"
    )
    error = conflict(said, REQUEST, "torch==2.14.1\nxformers==0.0.40\n")
    assert str(error) == "xformers==0.0.40 wants torch==2.14.1, and the plan has torch==2.15.0+cu132"


def test_a_companion_for_another_torch_is_a_conflict_too() -> None:
    said = "Because torchvision==0.29.2+cu132 depends on torch==2.14.1 and plan depends on …"
    assert str(conflict(said, REQUEST)) == (
        "torchvision==0.29.2+cu132 wants torch==2.14.1, and the plan has torch==2.15.0+cu132"
    )


def test_a_package_that_takes_the_planned_torch_is_no_conflict() -> None:
    assert conflict("Because lightning==2.5 depends on torch>=2.1,<3 and …", REQUEST) is None


def test_a_package_that_cannot_be_built_is_named_with_the_cause() -> None:
    text = (
        "error: Failed to build `flash-attn==2.8.3`\n  cause: The build backend returned an error\n"
        "  cause: Call to `setuptools.build_meta.build_wheel` failed (exit status: 1)\n\n"
        "         [stderr]\n         Traceback (most recent call last):\n"
        "         ModuleNotFoundError: No module named 'torch'\n\n"
        "hint: This error likely indicates that `flash-attn@2.8.3` depends on `torch`, but …\n"
    )
    error = explain_failure(failed(text), "choose the packages", REQUEST)
    assert isinstance(error, Unobtainable)
    assert str(error) == (
        "could not choose the packages: flash-attn==2.8.3 has no wheel that fits and cannot be built:"
        " ModuleNotFoundError: No module named 'torch'"
    )


@pytest.mark.parametrize(
    ("cause", "names"),
    [
        ("Because Simple.NumPy==2.2.0 was not found in the package registry and", {"simple-numpy"}),
        ("Because aa depends on numpy<2.3 and bb depends on numpy>=2.3, we can", {"aa", "bb", "numpy"}),
        ("no version of aa at https://mirror.example/simple/numpy fits", {"aa"}),
    ],
)
def test_the_packages_that_a_resolver_names_are_a_field_of_the_error(cause: str, names: set[str]) -> None:
    said = f"error: No solution found when resolving dependencies\n  cause: {cause}"
    error = explain_failure(failed(said), "choose the packages", REQUEST)
    assert isinstance(error, PackagesConflict | Unobtainable)
    assert names <= error.packages
    assert "numpy" in names or "numpy" not in error.packages
