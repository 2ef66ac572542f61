"""An index drops what an old environment pins: what cannot be built again is named with its file."""

from __future__ import annotations

from pathlib import Path

from tests.support.index import Index
from tests.support.workshop import Workshop, recorded

from torchenv.actions.fetchable import expiring, irreplaceable
from torchenv.index.pages import fetcher
from torchenv.lockfile.lock import Lock


def test_before_an_environment_is_removed_what_could_not_be_fetched_again_is_named(
    workshop: Workshop, index: Index
) -> None:
    made = workshop.create(recorded("v100-driver-580"))
    index.remove("simple", "nvidia-cudnn-cu12")
    said: list[str] = []
    head = fetcher(workshop.network, method="HEAD")
    why = irreplaceable(made.environment, workshop.store, head, said.append)
    assert why is not None
    assert why.startswith("nvidia-cudnn-cu12==9.10.2.21 can no longer be fetched: ")
    assert f"{index.packages}/nvidia_cudnn_cu12-9.10.2.21-py3-none-any.whl" in why
    assert "sha256" in why


def test_a_development_build_is_said_to_expire() -> None:
    text = (
        'lock-version = "1.0"\ncreated-by = "torchenv"\n[[packages]]\nname = "torch"\n'
        'version = "2.16.0.dev20261120+cu132"\nindex = "https://mirror.example/whl/cu132"\n'
        'wheels = [{ url = "https://mirror.example/torch-2.16.0.dev20261120%2Bcu132-cp312-cp312-win_amd64.whl",'
        f' hashes = {{ sha256 = "{"0" * 64}" }} }}]\n'
    )
    (note,) = expiring(Lock.parse(text, str(Path("pylock.toml"))))
    assert "expires" in note
