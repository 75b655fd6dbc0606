"""What `walktalk doctor` finds of this machine: Python, torch and its device, memory, disk, packages, data sets."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement

import walktalk
from walktalk.core.errors import DataError

State = Literal["good", "absent", "bad"]
"""`absent` is something that not everybody needs; `bad` is something that will not work."""


@dataclass(frozen=True)
class Finding:
    """What was looked at, how it is, and what to do about it."""

    about: str  # a word or two: "torch", "extra peers"
    state: State
    said: str  # one line
    remedy: str = ""  # a command or a setting; empty where nothing is to be done


TESTED = ((3, 10), (3, 11), (3, 12), (3, 13))  # on which the tests were run
LITTLE_MEMORY = 2 << 30
LITTLE_DISK = 1 << 30
# In a process of its own: where a CPU promises what it cannot do, the answer is a signal, not an exception.
PRODUCT = "import walktalk, torch; a = torch.ones(64, 64, dtype=torch.bfloat16); print(float((a @ a)[0, 0]))"


def python() -> Iterator[Finding]:
    """The interpreter, and which walktalk it finds."""
    yield Finding("walktalk", "good", f"{walktalk.__version__} in {Path(walktalk.__file__).parent}")
    tested = sys.version_info[:2] in TESTED
    said = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    versions = ", ".join(f"{major}.{minor}" for major, minor in TESTED)
    yield Finding("Python", "good", said if tested else f"{said}; the tests were run on {versions} only")


def torch_and_device() -> Iterator[Finding]:
    """Whether torch can be imported, on what it computes, and whether products in 16 bits work."""
    try:
        import torch
    except Exception as error:  # whatever a broken installation throws
        said = " ".join(str(error).split())
        yield Finding("torch", "bad", f"cannot be imported: {said}", "pip install --force-reinstall torch")
        return
    yield Finding("torch", "good", f"{torch.__version__}, {torch.get_num_threads()} threads on {os.cpu_count()} CPUs")
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            about = torch.cuda.get_device_properties(index)
            yield Finding("device", "good", f"cuda:{index}, {about.name}, {about.total_memory / 2**30:.0f} GB")
    elif torch.version.cuda:
        yield Finding("device", "good", "CPU; this torch could use CUDA, but finds no GPU")
    else:
        yield Finding("device", "good", "CPU; this torch has no CUDA, so a GPU would not be used")
    yield _bf16()


def _bf16() -> Finding:
    done = subprocess.run([sys.executable, "-c", PRODUCT], capture_output=True, text=True, timeout=120)
    kept = os.environ.get("ONEDNN_MAX_CPU_ISA")
    note = f"; ONEDNN_MAX_CPU_ISA={kept}" if kept else ""
    if done.returncode == 0 and done.stdout.strip() == "64.0":
        return Finding("bf16 on CPU", "good", f"products in 16 bits work{note}")
    died = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
    remedy = "set ONEDNN_MAX_CPU_ISA=AVX512_CORE, or stay with training.precision: fp32"
    return Finding("bf16 on CPU", "bad", f"a product in 16 bits ends with {died}{note}", remedy)


def room(folder: Path) -> Iterator[Finding]:
    """Memory and disk that are free, and whether results can be written."""
    free = _free_memory()
    if free is not None:
        few = free < LITTLE_MEMORY
        remedy = "close other programs, or say --memory" if few else ""
        yield Finding("memory", "bad" if few else "good", f"{free / 2**30:.1f} GB free", remedy)
    left = shutil.disk_usage(folder).free
    if not os.access(folder, os.W_OK):
        yield Finding("disk", "bad", f"nothing can be written to {folder}", "change to another folder, or use --out")
    elif left < LITTLE_DISK:
        yield Finding("disk", "bad", f"{left / 2**30:.1f} GB free in {folder}", "make room, or use --out")
    else:
        yield Finding("disk", "good", f"{left / 2**30:.0f} GB free in {folder}")


def _free_memory() -> int | None:
    """Bytes, where the system says so as Linux does."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(found[0]) << 10 if found else None


# -- what is installed: all that walktalk needs, its extras, and data sets ---------------------------------------------

EXTRAS = {
    "peers": "real nodes: run --engine peers, node, status, chaos",
    "language": "language models: the task mnli",
    "privacy": "what protects the data of nodes: the key privacy, wt.private",
    "ray": "studies on a cluster: run --workers ray",
    "tensorboard": "evaluations for TensorBoard: run --tensorboard, wt.TensorBoard",
    "mlflow": "evaluations for MLflow: run --mlflow, wt.MLflow",
    "wandb": "evaluations for Weights & Biases: run --wandb, wt.WandB",
}


def packages() -> Iterator[Finding]:
    """The dependencies in one line, then each extra."""
    declared = [Requirement(line) for line in requires("walktalk") or []]
    wrong = [said for one in declared if _applies(one, "") and (said := _misfit(one))]
    needed = sum(_applies(one, "") for one in declared)
    remedy = "pip install --upgrade walktalk"
    yield (
        Finding("packages", "bad", "; ".join(wrong), remedy)
        if wrong
        else Finding("packages", "good", f"all {needed} that are needed")
    )
    for extra, purpose in EXTRAS.items():
        own = [one for one in declared if _applies(one, extra) and not _applies(one, "")]
        missing = [said for one in own if (said := _misfit(one))]
        if missing:
            yield Finding(f"extra {extra}", "absent", f"{purpose}; {missing[0]}", f"pip install 'walktalk[{extra}]'")
        else:
            yield Finding(f"extra {extra}", "good", ", ".join(f"{one.name} {version(one.name)}" for one in own))


def _applies(one: Requirement, extra: str) -> bool:
    return one.marker is None or one.marker.evaluate({"extra": extra})


def _misfit(one: Requirement) -> str:
    """What is wrong with an installed package; empty where nothing is."""
    try:
        found = version(one.name)
    except PackageNotFoundError:
        return f"{one.name} is not installed"
    fits = one.specifier.contains(found, prereleases=True)
    return "" if fits else f"{one.name} is {found}, but {one.specifier} is needed"


def data_sets() -> Iterator[Finding]:
    """Each data set that is files: there and whole, not there, or damaged."""
    from walktalk.learning import data  # imports torch, which may be what is wrong here

    for name, dataset in data.DATASETS.items():
        folder = data.home() / dataset.folder
        if not any((folder / file).exists() for file in dataset.files):
            yield Finding(f"data {name}", "absent", f"not in {folder}", f"walktalk data get {name}")
            continue
        try:
            yield Finding(f"data {name}", "good", f"in {data.locate(dataset)}, complete and unchanged")
        except DataError as error:
            yield Finding(f"data {name}", "bad", str(error), f"walktalk data get {name}")
