"""Before a run: whether one site of a cluster can take part, and what is to be done where it cannot.

`preflight` is what `walktalk doctor --config cluster.yaml --name lyon` looks at beside this machine: the kit, the task
and one training of it, memory, shared memory, folders, the form of the data, the relay, and every neighbour that runs
or that is being looked at, too.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from walktalk.core.errors import SpecError, UserError
from walktalk.core.untrusted import parsed_json, shown
from walktalk.testing.doctor import Finding

if TYPE_CHECKING:
    from walktalk.learning import Schema
    from walktalk.runtimes.peers import Cluster, Seen
    from walktalk.studies.peers import SiteTrial

MODELS_HELD = 6  # of a node, beside two for each neighbour: its own, those that arrive, wait, train, leave, are written
LITTLE_SHARED = 128 << 20  # bytes of shared memory: containers get 64 MiB unless they ask for more
SPARE_DISK = 1 << 30  # bytes, beside the checkpoints
COPIES = 4  # of a model on a disk: checkpoint, copy, best, and one that is being written
CLOCKS_DIFFER = 60.0  # seconds between two clocks from which on that is worth a word
CLOCKS_APART = 3600.0  # seconds from which on certificates and traces suffer
PATIENCE = 5.0  # seconds for a neighbour to answer at first
AGAIN = 1.0  # seconds until a neighbour that was not there is looked at again
CACHES = ("TORCH_HOME", "HF_HOME", "MPLCONFIGDIR", "XDG_CACHE_HOME", "TRITON_CACHE_DIR")


def preflight(cluster: Cluster, name: str, device: str = "auto", wait: float = 0.0) -> Iterator[Finding]:
    """Yields every finding on one site of a cluster as soon as it is known.

    Args:
        cluster: as in the file.
        name: of the site's node.
        device: auto, cpu or cuda.
        wait: seconds to stay and answer the doctors of other sites, and to ask again those that were not there.
    """
    from walktalk.studies.peers import try_site

    yield from kit(cluster)
    began = time.monotonic()
    try:
        trial = try_site(cluster, name, device)
    except UserError as error:
        yield Finding("task", "bad", str(error), "mend this first: nothing more can be looked at without the task")
        return
    except Exception as error:  # whatever a person's task raises
        said = f"{type(error).__name__}: {shown(error)}"
        yield Finding("task", "bad", said, "run the task's function by hand at this site, with part set to its name")
        return
    samples = trial.task.details.get("samples", len(trial.task.inputs))
    took = time.monotonic() - began
    yield Finding("task", "good", f"{trial.task.name}, {samples:,} samples here, built in {took:.1f} s")
    yield from one_training(trial, len(_neighbours(cluster, name, trial)))
    yield from shared_memory(4 * trial.initial.numel() if _is_outside(trial) else 0)
    yield from folders(cluster, 4 * trial.initial.numel())
    yield from the_schema(trial)
    yield from way_to_relay(cluster, name)
    yield from neighbours(cluster, name, trial, wait)


def _is_outside(trial: SiteTrial) -> bool:
    from walktalk.runtimes.peers import OutsideTrainer

    return isinstance(trial.trainer, OutsideTrainer)


def _neighbours(cluster: Cluster, name: str, trial: SiteTrial) -> list[str]:
    from walktalk.runtimes.peers import neighbours_of

    try:
        return neighbours_of(cluster, name, trial.graph)
    except UserError:  # no certificate yet, which is said elsewhere
        return [other for other in cluster.file_names if other != name]


# -- the kit ----------------------------------------------------------------------------------------------------------


def kit(cluster: Cluster) -> Iterator[Finding]:
    """The kit that the cluster's file lies in, if it does."""
    from walktalk.runtimes.peers import check_kit

    if cluster.home is None or not (cluster.home / "kit.json").is_file():
        return
    try:
        for found in check_kit(cluster.home):
            about = "kit" if found.about == "kit" else f"kit, {found.about}"
            yield Finding(about, "good" if found.is_well else "bad", found.said, found.remedy)
    except UserError as error:
        yield Finding("kit", "bad", str(error))


# -- one training -----------------------------------------------------------------------------------------------------


def one_training(trial: SiteTrial, contacts: int) -> Iterator[Finding]:
    """Trains the first model once, as a visit does, and looks at what that takes."""
    import torch

    from walktalk.learning import is_out_of_memory, machine_memory

    model = 4 * trial.initial.numel()
    if _is_outside(trial):
        yield Finding(
            "one training", "absent", "is your script's; it is not tried here", "run the script for one visit"
        )
        yield _room_for_models(model, contacts, 0, machine_memory())
        return
    on_gpu = trial.trainer.device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    before = _resident()
    began = time.monotonic()
    try:
        trained = trial.train()
    except Exception as error:  # whatever a person's model or loss raises
        small = "take a smaller batch (training.batch_size) or model" if is_out_of_memory(error) else ""
        said = f"{type(error).__name__}: {shown(error)}"
        yield Finding("one training", "bad", said, small or "mend the model, the loss or the data of this site")
        return
    took, steps = time.monotonic() - began, trial.trainer.local_steps
    size = f"{trial.initial.numel():,} numbers, {model / 1e6:,.1f} MB"
    if not bool(torch.isfinite(trained).all()):
        remedy = "lower optimizer.lr, or look for values that are none or very large in this site's data"
        yield Finding("one training", "bad", f"its result is not finite; the model has {size}", remedy)
    elif bool((trained == trial.initial).all()):
        yield Finding("one training", "bad", "it changes nothing: no parameter has a gradient", "see what trains")
    else:
        yield Finding("one training", "good", f"{steps} steps in {took:.2f} s on {trial.trainer.device}; {size}")
    if on_gpu:
        peak, total = torch.cuda.max_memory_allocated(), torch.cuda.get_device_properties(0).total_memory
        full = peak > 0.9 * total
        remedy = "take a smaller batch or model" if full else ""
        said = f"{peak / 2**30:.2f} of {total / 2**30:.1f} GB at this model and batch"
        yield Finding("memory of the GPU", "bad" if full else "good", said, remedy)
    yield _room_for_models(model, contacts, max(0, _peak() - before), machine_memory())


def _room_for_models(model: int, contacts: int, training: int, free: float) -> Finding:
    """Whether memory is there for a training and for all models that a node may hold at once."""
    needed = training + (MODELS_HELD + 2 * contacts) * model
    told = "" if math.isinf(free) else f" of {free / 2**30:.1f} GB that are free"
    said = f"{needed / 1e6:,.1f} MB{told}: a training, and models of and for {contacts} neighbours"
    if needed > free:
        return Finding("memory for a run", "bad", said, "fewer neighbours, a smaller model or batch, or more memory")
    return Finding("memory for a run", "good", said)


def _resident() -> int:
    """Bytes of this process in memory, whose highest value is counted from now on."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _of_status("VmRSS")


def _peak() -> int:
    return _of_status("VmHWM")


def _of_status(field: str) -> int:
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/status").read_text().split(f"{field}:")[1].split()[0]) << 10
    return 0


# -- shared memory, folders -------------------------------------------------------------------------------------------


def shared_memory(model: int, folder: Path = Path("/dev/shm")) -> Iterator[Finding]:
    """Whether shared memory is large enough: for data loaders with workers, and for models that a script is given.

    Args:
        model: bytes of a model that goes to a script; 0 where none does.
        folder: where shared memory is.
    """
    if not folder.is_dir():
        yield Finding(str(folder), "absent", "is not there; data loaders with workers need it")
        return
    remedy = "a container: --shm-size=1g, or shm_size in compose.yaml; else mount -o remount,size=1g /dev/shm"
    if not os.access(folder, os.W_OK):
        yield Finding(str(folder), "bad", "nothing can be written there", remedy)
        return
    free, needed = shutil.disk_usage(folder).free, 2 * model
    said = f"{free / 2**20:,.0f} MB free"
    if free < needed:
        yield Finding(str(folder), "bad", f"{said}; models for your script take {needed / 2**20:,.0f} MB", remedy)
    elif free < LITTLE_SHARED:
        yield Finding(str(folder), "absent", f"{said}; data loaders with workers may fail", remedy)
    else:
        yield Finding(str(folder), "good", said)


def folders(cluster: Cluster, model: int) -> Iterator[Finding]:
    """Whether everything can be written that a node and its libraries write, with room for the model's copies."""
    home = Path(os.environ.get("HOME") or "/")
    caches = {variable: Path(os.environ[variable]) for variable in CACHES if os.environ.get(variable)}
    for about, path, remedy in (
        ("records", cluster.folder, "say folder: another path in the cluster's file, or give the user that one"),
        ("temporary files", Path(tempfile.gettempdir()), "set TMPDIR to a folder that can be written"),
        *((variable, path, f"set {variable} to a folder that can be written") for variable, path in caches.items()),
        ("caches", home / ".cache", "set XDG_CACHE_HOME, TORCH_HOME and HF_HOME to a folder that can be written"),
    ):
        if about == "caches" and "XDG_CACHE_HOME" in caches:
            continue
        why = _why_not_written(path)
        if why:
            is_bad = about in ("records", "temporary files") or about in caches
            yield Finding(about, "bad" if is_bad else "absent", f"{path}: {why}", remedy)
        elif about == "records":
            yield _disk(path, COPIES * model + SPARE_DISK)
        else:
            yield Finding(about, "good", f"{path} can be written")


def _disk(path: Path, needed: int) -> Finding:
    free = shutil.disk_usage(_existing(path)).free
    if free < needed:
        said = f"{path}: {free / 2**30:.1f} GB free; {needed / 2**30:.1f} GB are needed"
        return Finding("records", "bad", said, "make room, or say folder: another path in the cluster's file")
    return Finding("records", "good", f"{path} can be written, {free / 2**30:.0f} GB free")


def _why_not_written(path: Path) -> str:
    """Why nothing can be written in a folder, or it cannot be made; "" where it can. What is tried is removed."""
    place = _existing(path)
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"walktalk")
            file.flush()
    except OSError as error:
        return f"{error.strerror or error}{'' if place == path else f' (in {place})'}"
    return ""


def _existing(path: Path) -> Path:
    """The folder, or the one above it that is there."""
    return next(one for one in (path, *path.absolute().parents) if one.is_dir())


# -- the form of the data ---------------------------------------------------------------------------------------------


def the_schema(trial: SiteTrial) -> Iterator[Finding]:
    """What this site's data looks like, without its values."""
    from walktalk.learning import schema_of

    schema = schema_of(trial.task)
    if schema is None:
        said = "is read by your own code, and not seen here"
        yield Finding("data", "absent", said, "compare the columns of all sites by hand")
        return
    inputs = [column for column in schema.columns if not column.is_target]
    yield Finding("data", "good", f"schema {schema.digest}: {len(inputs)} columns, {_some(inputs)}")


def _some(columns: list[Any]) -> str:
    named = [column.name or f"{column.kind} {list(column.shape)}" for column in columns]
    return ", ".join(named[:6]) + (" …" if len(named) > 6 else "")


def write_schema(cluster: Cluster, name: str, path: Path) -> None:
    """Write the schema of this site's data, with the classes of its ranges and without a value, for the operator."""
    from walktalk.learning import schema_of
    from walktalk.records import write_text
    from walktalk.studies.peers import try_site

    schema = schema_of(try_site(cluster, name, "cpu").task)
    if schema is None:
        raise SpecError(f"--schema: the data of {name} is read by your own code, and not seen here")
    whole = {"cluster": cluster.name, "name": name, "schema": schema.said(ranges=True)}
    write_text(path, json.dumps(whole, indent=1) + "\n")


def compared_schemas(paths: list[Path]) -> Iterator[Finding]:
    """Compares the schemas that sites have written, each with the first."""
    from walktalk.learning import range_differences, schema_differences

    read = [_read_schema(path) for path in paths]
    (first, one), others = read[0], read[1:]
    yield Finding(f"data of {first}", "good", f"schema {one.digest}, {len(one.columns)} columns")
    for name, other in others:
        differ = schema_differences(one, other, (f"at {first}", f"at {name}"))
        if differ:
            remedy = "say for all which columns, in which order: columns=[…] in the task; then write the files again"
            yield Finding(f"data of {name}", "bad", "; ".join(differ), remedy)
        else:
            yield Finding(f"data of {name}", "good", f"schema {other.digest}, as at {first}")
        for word in range_differences(one, other, (f"at {first}", f"at {name}")):
            yield Finding(f"range at {name}", "absent", word, "are both in one unit?")


def _read_schema(path: Path) -> tuple[str, Schema]:
    from walktalk.learning import heard_schema

    try:
        said = parsed_json(path.read_bytes())
        schema = heard_schema(said["schema"])
        if schema is None:
            raise ValueError("it has no schema")
        return shown(said["name"], 63), schema
    except OSError as error:
        raise SpecError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        made = "walktalk doctor --config CLUSTER.yaml --name NAME --schema FILE"
        raise SpecError(f"{path} is no schema: {shown(error)}; `{made}` writes one") from error


# -- the ways ---------------------------------------------------------------------------------------------------------


def way_to_relay(cluster: Cluster, name: str) -> Iterator[Finding]:
    """The relay: whether it lets this site in, how far away it is, and its bandwidth there and back."""
    from walktalk.runtimes.peers import way_through_relay

    if not cluster.relay:
        return
    try:
        way = way_through_relay(cluster, name)
    except UserError as error:
        remedy = "see that the relay runs, and that nothing between forbids to dial its port"
        yield Finding("way to the relay", "bad", str(error), remedy)
        return
    rate = "this node is at it already" if way.bandwidth is None else f"{8e-6 * way.bandwidth:,.1f} Mbit/s"
    yield Finding("way to the relay", "good", f"{cluster.relay}: {1e3 * way.delay:.0f} ms, {rate}")


def neighbours(cluster: Cluster, name: str, trial: SiteTrial, wait: float) -> Iterator[Finding]:
    """Every neighbour that runs, or is being looked at: versions, clock, study, data, kit, delay and bandwidth."""
    from walktalk.learning import schema_of
    from walktalk.runtimes.peers import Sight, being_looked_at, edition_of

    sight = Sight(trial.facts, schema_of(trial.task), edition_of(cluster.home))
    try:
        contacts = _neighbours(cluster, name, trial)
        if wait <= 0.0:
            yield from _look_at_all(cluster, name, contacts, sight, trial, 0.0)
            return
        with being_looked_at(cluster, name, trial.graph, sight) as is_seen:
            if not is_seen:
                yield Finding("this node", "good", "is running, or its port is taken: it answers others itself")
            end = time.monotonic() + wait
            yield from _look_at_all(cluster, name, contacts, sight, trial, wait)
            while is_seen and time.monotonic() < end:  # others may look at this one still
                time.sleep(min(AGAIN, max(0.0, end - time.monotonic())))
    except UserError as error:
        yield Finding("neighbours", "bad", str(error))


def _look_at_all(
    cluster: Cluster, name: str, contacts: list[str], sight: Any, trial: SiteTrial, wait: float
) -> Iterator[Finding]:
    if not contacts:
        return
    with ThreadPoolExecutor(min(8, len(contacts))) as pool:
        looks = {other: pool.submit(_look, cluster, name, other, trial.facts, wait) for other in contacts}
        for other, look in looks.items():
            yield from _of_neighbour(name, other, look.result(), sight)


def _look(cluster: Cluster, name: str, other: str, facts: Mapping[str, Any], wait: float) -> Seen | str:
    """What is seen of a neighbour, or why nothing is."""
    from walktalk.runtimes.peers import look_at

    end = time.monotonic() + wait
    while True:
        try:
            return look_at(cluster, name, other, facts, PATIENCE)
        except UserError as error:
            if time.monotonic() >= end:
                return str(error)
        except (ValueError, KeyError, TypeError) as error:  # what it says is nonsense
            return f"it answers with nonsense: {shown(error)}"
        time.sleep(AGAIN)


def _of_neighbour(name: str, other: str, seen: Seen | str, sight: Any) -> Iterator[Finding]:
    import walktalk
    from walktalk.learning import schema_differences
    from walktalk.runtimes.peers import older_kit

    about = f"way to {other}"
    if isinstance(seen, str):
        said = seen.removeprefix(f"{name}: nobody opens: ")
        remedy = "fine if it is not running yet: say --wait 300 at both sites at a time; else look at what is between"
        yield Finding(about, "absent", said, remedy)
        return
    far = f"{1e3 * seen.delay:.0f} ms, {8e-6 * seen.bandwidth:,.1f} Mbit/s, walktalk {seen.walktalk}"
    same = seen.walktalk == walktalk.__version__
    yield Finding(about, "good", far + ("" if same else f" (here {walktalk.__version__})"))
    ahead = f"{abs(seen.ahead):,.1f} s {'ahead of' if seen.ahead > 0 else 'behind'} this machine's"
    if abs(seen.ahead) > CLOCKS_DIFFER:
        remedy, is_bad = "set both clocks by a time server (NTP)", abs(seen.ahead) > CLOCKS_APART
        yield Finding(f"clock of {other}", "bad" if is_bad else "absent", ahead, remedy)
    else:
        yield Finding(f"clock of {other}", "good", ahead)
    if seen.differs:
        remedy = "open the newest kit at both sites, or give both the same cluster's file and task"
        yield Finding(f"study of {other}", "bad", "; ".join(seen.differs), remedy)
    if differ := schema_differences(sight.schema, seen.schema, ("here", f"at {other}")):
        remedy = "say for all which columns, in which order: columns=[…] in the task"
        yield Finding(f"data of {other}", "bad", "; ".join(differ), remedy)
    elif seen.schema is not None and sight.schema is not None:
        yield Finding(f"data of {other}", "good", f"schema {seen.schema.digest}, as here")
    if old := older_kit(sight.edition, seen.edition, (name, other)):
        yield Finding(f"kit of {other}", "absent", old, "walktalk kit open ARCHIVE")
