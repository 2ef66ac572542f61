"""The real thing: what torch 2.15.0 saves, 2.14.1 reads once it is downgraded, or was written so."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.checkpoints.support import DATA, SAMPLES

from torchenv.checkpoints.readability import rules

pytestmark = pytest.mark.real

KINDS = ("plain", "optimizer", "async", "fsdp2")

# Saves one kind of checkpoint, and its whole tensors as plain torch.save does, which both releases read; or
# loads it into zeros and compares each value with these.
PROGRAM = """
import os, sys
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

what, kind, directory = sys.argv[1:]
ranks = int(os.environ.get("WORLD_SIZE", 1))
if ranks > 1:
    dist.init_process_group("gloo")


def trained():
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Linear(5, 3))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.arange(parameter.numel(), dtype=torch.float32).reshape(parameter.shape) / 7)
    if kind == "fsdp2" and ranks > 1:
        fully_shard(model, mesh=init_device_mesh("cpu", (ranks,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model(torch.ones(2, 6)).sum().backward()
    optimizer.step()
    return model, optimizer


def state():
    if kind in ("plain", "async"):
        return {
            "weight": torch.arange(12.0).reshape(3, 4),
            "turned": torch.arange(12.0).reshape(3, 4).t(),
            "half": torch.arange(5).to(torch.bfloat16),
            "nested": {"flags": torch.tensor([True, False]), "scalar": torch.tensor(7)},
        }
    model, optimizer = trained()
    model_state, optimizer_state = get_state_dict(model, optimizer)
    return {"model": model_state, "optimizer": optimizer_state}


def whole(values):
    if isinstance(values, dict):
        return {key: whole(each) for key, each in values.items()}
    return values.full_tensor() if isinstance(values, DTensor) else values


def zeros(values):
    if isinstance(values, dict):
        return {key: zeros(each) for key, each in values.items()}
    return torch.zeros_like(values) if isinstance(values, torch.Tensor) else values


def tensors(values, name=""):
    if isinstance(values, dict):
        for key, each in values.items():
            yield from tensors(each, f"{name}.{key}")
    elif isinstance(values, torch.Tensor):
        yield name, values


expected = f"{directory}.expected"
if what == "save":
    os.makedirs(os.path.dirname(directory), exist_ok=True)
    values = state()
    full = whole(values)
    if not dist.is_initialized() or dist.get_rank() == 0:
        torch.save(full, expected)
    if kind == "async":
        dcp.async_save(values, checkpoint_id=directory).result()
    else:
        dcp.save(values, checkpoint_id=directory)
else:
    # One process reads what several wrote, into whole tensors.
    values = zeros(torch.load(expected) if ranks == 1 else state())
    dcp.load(values, checkpoint_id=directory)
    found, wanted = dict(tensors(whole(values))), dict(tensors(torch.load(expected)))
    assert found.keys() == wanted.keys() and found
    wrong = [name for name in wanted if not torch.equal(found[name], wanted[name])]
    assert not wrong, wrong
    assert any(each.count_nonzero() for each in wanted.values())
# One string, which the ranks cannot write into each other.
print(f"WELL {torch.__version__}", flush=True)
if dist.is_initialized():
    # Nobody leaves while another still waits for what it sends.
    dist.barrier()
    dist.destroy_process_group()
    # As an interpreter ends, a thread of 2.14.1 aborts the process in one of six runs ("terminate called
    # without an active exception"), and torchrun calls it failed: all that is asked here is answered by then.
    os._exit(0)
"""


@dataclass(frozen=True)
class Trainings:
    """A project with torch 2.14.1, and beside it 2.15.0 as torchenv makes it: environments 1 and 2."""

    project: Path
    workspace: Path
    directory: Path

    def torchenv(self, *words: str) -> subprocess.CompletedProcess[str]:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("TORCHENV_")}
        return subprocess.run(
            [sys.executable, "-m", "torchenv", *words[:1], "--root", str(self.workspace), *words[1:]],
            cwd=self.project,
            env={**environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=1800,
        )

    def run(
        self, number: int, what: str, kind: str, directory: Path, *, ranks: int, write_for: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        program = self.directory / "program.py"
        program.write_text(PROGRAM)
        words = ["-e", str(number), *(["--write-for", write_for] if write_for else []), "--"]
        start = ["python", "-B"] if ranks == 1 else ["torchrun", f"--nproc-per-node={ranks}", "--standalone"]
        return self.torchenv("run", *words, *start, str(program), what, kind, str(directory))

    def save(self, kind: str, directory: Path, *, write_for: str | None = None) -> None:
        ranks = 2 if kind == "fsdp2" else 1
        done = self.run(2, "save", kind, directory, ranks=ranks, write_for=write_for)
        assert "WELL 2.15.0" in done.stdout, describe_end(done)
        if write_for:
            said = "distributed checkpoints are written for torch 2.14 here"
            assert done.stderr.count(said) == 1, describe_end(done)

    def explain_load(self, number: int, kind: str, directory: Path, *, ranks: int = 1) -> str | None:
        """Load in an environment; what the program printed where a value is wrong or a rank failed."""
        done = self.run(number, "load", kind, directory, ranks=ranks)
        version = {1: "2.14.1", 2: "2.15.0"}[number]
        if done.returncode == 0 and done.stdout.count(f"WELL {version}") == ranks:
            return None
        return f"environment {number}, {ranks} ranks: {describe_end(done)}"


def describe_end(done: subprocess.CompletedProcess[str]) -> str:
    """Return how a program ended and all that it printed."""
    return f"ended with {done.returncode}\n--- stdout\n{done.stdout}\n--- stderr\n{done.stderr}"


@pytest.fixture(scope="module")
def trainings(old_environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Trainings:
    directory = tmp_path_factory.mktemp("checkpoints")
    project = old_environment.parent
    made = Trainings(project, directory / "workspace", directory)
    profile = directory / "numpy.toml"
    profile.write_text('schema = 1\nname = "numpy"\n[packages]\nrequirements = ["numpy"]\n')
    done = made.torchenv("create", "2.15", "--profile", str(profile))
    assert done.returncode == 0, describe_end(done)
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_what_2_15_saves_2_14_reads_once_it_is_downgraded(trainings: Trainings, kind: str) -> None:
    saved = trainings.directory / "runs" / kind / "step-1"
    trainings.save(kind, saved)
    assert trainings.explain_load(2, kind, saved) is None
    refused = trainings.explain_load(1, kind, saved)
    assert refused is not None
    assert "too many values to unpack" in refused, refused

    down = trainings.torchenv("checkpoints", "downgrade", str(saved), "--for", "2.14", "--prove", "--json")
    assert down.returncode == 0, describe_end(down)
    document = json.loads(down.stdout)
    copy = Path(document["copies"][0]["copy"])
    (proof,) = document["proofs"]
    assert (proof["differences"], proof["tensors"] > 0) == ([], True)
    for form in ("safetensors", "torch-save"):
        other = trainings.directory / "converted" / f"{kind}-{form}"
        done = trainings.torchenv("checkpoints", "convert", str(saved), str(other), "--to", form, "--json")
        assert done.returncode == 0, describe_end(done)
        assert json.loads(done.stdout)["tensors"] == proof["tensors"]
    expected = copy.with_name(f"{copy.name}.expected")
    expected.hardlink_to(saved.with_name(f"{saved.name}.expected"))

    ranks = (1, 2) if kind == "fsdp2" else (1,)
    for number in (1, 2):
        for count in ranks:
            assert trainings.explain_load(number, kind, copy, ranks=count) is None


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_written_for_2_14_needs_no_downgrade(trainings: Trainings, kind: str) -> None:
    saved = trainings.directory / "written-for" / kind / "step-1"
    trainings.save(kind, saved, write_for="2.14")
    ranks = (1, 2) if kind == "fsdp2" else (1,)
    for number in (1, 2):
        for count in ranks:
            assert trainings.explain_load(number, kind, saved, ranks=count) is None
    down = trainings.torchenv("checkpoints", "downgrade", str(saved), "--for", "2.14", "--json")
    assert down.returncode == 0, describe_end(down)
    (copied,) = json.loads(down.stdout)["copies"]
    assert (copied["made"], copied["why"]) == (False, "torch 2.14 reads it as it is")


def test_a_scan_tells_who_reads_what_was_really_saved(trainings: Trainings) -> None:
    saved = trainings.directory / "scanned" / "step-1"
    trainings.save("plain", saved)
    done = trainings.torchenv("checkpoints", "scan", "--json", str(saved.parent))
    assert done.returncode == 0, describe_end(done)
    (found,) = [
        checkpoint for checkpoint in json.loads(done.stdout)["checkpoints"] if checkpoint["format"] == "dcp"
    ]
    assert found["reader"]["torch_min"] == "2.15"
    assert found["environments"] == {"1": "unreadable", "2": "readable"}


# Loads each checkpoint as this torch does by default, in a process of its own: none sees another's imports.
# Prints what came of each, and the names that torch.load opens by default.
ASK = """
import json, os, sys, warnings
warnings.simplefilter("ignore")
import torch
from torch import _weights_only_unpickler

torch.set_num_threads(1)
program, top, answer = sys.argv


def file_of(path):
    names = os.listdir(path)
    is_one = len(names) == 1 and not names[0].endswith((".safetensors", ".distcp", ".metadata"))
    return os.path.join(path, names[0]) if is_one else None


def load(path):
    if file := file_of(path):
        try:
            torch.load(file)
        except RuntimeError as error:
            if "TorchScript" not in str(error):
                raise
            torch.jit.load(file)
        return
    import torch.distributed.checkpoint as dcp

    if any(name.endswith(".safetensors") for name in os.listdir(path)):
        reader = dcp.HuggingFaceStorageReader(path)
    else:
        reader = dcp.FileSystemReader(path)
    try:
        metadata = reader.read_metadata()
    except FileNotFoundError:
        metadata = reader.read_metadata(rank=0)
    state = {
        name: torch.empty(tuple(entry.size), dtype=entry.properties.dtype)
        for name, entry in metadata.state_dict_metadata.items()
        if hasattr(entry, "properties")
    }
    state |= dict.fromkeys(metadata.state_dict_metadata.keys() - state.keys())
    dcp.load(state, storage_reader=reader)


def ask(path):
    reading, writing = os.pipe()
    if os.fork() == 0:
        try:
            load(path)
            said = "loaded"
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"[:300]
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        said = file.read().decode()
    os.wait()
    return said


writers = {writer: os.listdir(os.path.join(top, writer)) for writer in os.listdir(top)}
paths = [os.path.join(writer, kind) for writer, kinds in writers.items() for kind in kinds]
said = {path: ask(os.path.join(top, path)) for path in paths if file_of(os.path.join(top, path))}
import torch.distributed.checkpoint

said |= {path: ask(os.path.join(top, path)) for path in paths if path not in said}
with open(answer, "w") as file:
    json.dump({"said": said, "trusted": sorted(_weights_only_unpickler._get_allowed_globals())}, file)
"""


def list_trusted(torch: str) -> list[str]:
    """Return the names that torch.load opens by default, as the packaged data say."""
    known = rules()
    opened = {code: known.features[code].weights_only for code in known.trusted.values() if code}
    return sorted(
        str(name) for name, code in known.trusted.items() if not code or torch in (opened[code] or ())
    )


def test_what_dcp_wrote_for_hugging_face_becomes_one_file(trainings: Trainings) -> None:
    made = trainings.directory / "consolidated"
    for form in ("safetensors", "torch-save"):
        target = made / form
        done = trainings.torchenv(
            "checkpoints", "convert", str(SAMPLES / "2.15.0" / "sh_hf"), str(target), "--to", form, "--json"
        )
        assert done.returncode == 0, describe_end(done)
        assert json.loads(done.stdout)["tensors"] == 4
    # Whole tensors, of pieces that two ranks wrote by rows and by columns.
    done = trainings.torchenv("run", "-e", "2", "--", "python", "-B", "-c", LOOK, str(made / "torch-save"))
    assert done.returncode == 0, describe_end(done)
    counting = [float(2 + n % 7) for n in range(24)]
    assert json.loads(done.stdout) == {"s0": [[6, 4], counting], "s1": [[6, 4], counting]}


LOOK = """
import json, sys, torch
loaded = torch.load(sys.argv[1])
whole = {name: loaded[name] for name in ("s0", "s1")}
print(json.dumps({name: [list(tensor.shape), tensor.flatten().tolist()] for name, tensor in whole.items()}))
"""


@pytest.mark.parametrize("layout", ["megatron", "nemo"])
def test_a_save_that_names_torchs_planner_is_downgraded_and_loads(trainings: Trainings, layout: str) -> None:
    run = trainings.directory / layout
    shutil.copytree(DATA / "layouts" / layout, run)
    for marker in run.rglob("*-unfinished"):
        marker.unlink()
    done = trainings.torchenv("checkpoints", "downgrade", str(run), "--for", "2.14", "--newest", "--json")
    assert done.returncode == 0, describe_end(done)
    ((copied,), refused) = (json.loads(done.stdout)[key] for key in ("copies", "refused"))
    assert refused == [], describe_end(done)
    shutil.rmtree(copied["copy"])
    done = trainings.torchenv(
        "checkpoints", "downgrade", copied["source"], "--for", "2.14", "--prove", "--json"
    )
    assert done.returncode == 0, describe_end(done)
    (proof,) = json.loads(done.stdout)["proofs"]
    assert (proof["differences"], proof["tensors"]) == ([], 1), describe_end(done)
    assert [proof[key][:6] for key in ("original_torch", "copy_torch")] == ["2.15.0", "2.14.1"]


def test_every_verdict_is_what_the_real_releases_do_by_default(trainings: Trainings) -> None:
    program = trainings.directory / "ask.py"
    program.write_text(ASK)
    top = trainings.directory / "asked"
    (top / "layouts").mkdir(parents=True)
    for writer in SAMPLES.iterdir():
        (top / writer.name).symlink_to(writer)
    # What trainers wrote: megatron-core's and NeMo's metadata name torch's own planner.
    for number, metadata in enumerate(sorted((DATA / "layouts").rglob(".metadata"))):
        (top / "layouts" / str(number)).symlink_to(metadata.parent)
    scanned = trainings.torchenv("checkpoints", "show", "--json", str(top))
    assert scanned.returncode in (0, 1), describe_end(scanned)
    judged = {
        "/".join(found["path"].partition("asked/")[2].split("/")[:2]): found
        for found in json.loads(scanned.stdout)["checkpoints"]
        if found["format"] == "dcp" or "layouts" not in found["path"]
    }
    contradicted, unknown, asked = [], 0, 0
    for number, torch in ((1, "2.14.1"), (2, "2.15.0")):
        answer = trainings.directory / f"answer-{number}.json"
        done = trainings.torchenv(
            "run", "-e", str(number), "--", "python", "-B", str(program), str(top), str(answer)
        )
        assert done.returncode == 0, describe_end(done)
        document = json.loads(answer.read_text())
        assert document["said"].keys() == judged.keys()
        for path, said in document["said"].items():
            verdict, certainty = (
                judged[path]["environments"][str(number)],
                judged[path]["reader"]["certainty"],
            )
            asked += 1
            unknown += verdict == "unknown"
            is_wrong = verdict != "unknown" and (verdict == "readable") != (said == "loaded")
            if is_wrong and certainty == "confirmed":
                contradicted.append((torch, path, verdict, said))
        assert list_trusted(torch) == document["trusted"]
    assert contradicted == []
    assert unknown <= 0.05 * asked
