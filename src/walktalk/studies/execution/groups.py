"""Memory, planned ahead: what every run of a study needs, and groups of runs that fit into what there is.

Nothing is trained before it is known that it fits. Runs are independent, so a study that does not fit at once is done
group after group; on a CPU a run's bytes do not depend on who else is in its group.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from walktalk.core.errors import UnavailableError
from walktalk.learning import Trainer, machine_memory
from walktalk.records import RunFolder, StudyFolder
from walktalk.runtimes.semantics import Evaluate
from walktalk.runtimes.simulator import Simulation
from walktalk.runtimes.stacked import Planner
from walktalk.studies.execution.process import Interrupted
from walktalk.studies.execution.run_log import Watch
from walktalk.studies.execution.runner import Runner, estimated_trainings, trainings_a_stretch, wave_policy
from walktalk.studies.planning import PlannedRun, Progress, RunRecord

SHARE = 0.8  # of the free memory may be planned with
ROOM = 1.25  # times what was counted: later stretches differ a little from the first
LOOK_AHEAD = 2  # visits per walk or node in the stretch that is planned to count rows
LARGE_MODEL = 2**24  # numbers in a model from which rows are counted exactly: an eighth too many would be gigabytes
LOOK_FAR = 4000  # trainings that are planned to count them
COPIES_BESIDE = 8  # of every row in a wave: its models, gradients, optimizer state
ROWS_BESIDE = 10  # where models are trained alone: the one in training, its gradients twice, in 16 bits, and some that
# are mixed and measured; on an H200 a model of 134.5 million parameters with Adam took 5.6 GB where this plans with 8
STATES_BESIDE = 2  # likewise
POOLS = 2  # of activations: a CUDA graph's own, and those of its warm-up or of an evaluation
WIDEST_WAVE = 256  # rows; a wider one is rare, and its copies are smaller than what is planned for these
UNITS = {"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12}


@dataclass(frozen=True)
class Need:
    """The rows and bytes of memory that one run takes while it is done."""

    rows: int  # models alive at once
    state_rows: int  # optimizer states alive at once
    bytes: float


def parse_memory(text: str) -> float:
    """Bytes from what a person writes: 8GB, 500 MB, or a plain number of bytes."""
    words = text.strip().lower()
    number, unit = (words[:-2], UNITS[words[-2:]]) if words[-2:] in UNITS else (words.removesuffix("b"), 1.0)
    try:
        size = float(number) * unit
    except ValueError:
        size = 0.0
    if not 0 < size < float("inf"):
        raise UnavailableError(f"--memory {text!r} is not a size; write for example 8GB or 500MB")
    return size


def free_memory(device: torch.device) -> float:
    """Bytes that may be planned with on a device now; infinity where the system does not tell."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # kept by torch for us
        return SHARE * (torch.cuda.mem_get_info(device)[0] + unused)
    return SHARE * machine_memory()


def need_of(run: PlannedRun, trainer: Trainer) -> Need:
    """Rows are counted by planning the start of the run, without arithmetic.

    Values that a slot or a message holds are counted too, each once, as if all were different: at the start many still
    are the same, such as the aggregator's copies of all walks.
    """
    if trainer.width > LARGE_MODEL:
        return exact_need_of(run, trainer)
    setup = run.setup
    visits = LOOK_AHEAD * setup.protocol.active_models(setup.graph.nodes)
    share = min(1.0, visits / max(1, estimated_trainings([run])))
    simulation = Simulation(replace(setup, keep_trace=False, evaluate=Evaluate(every=max(1, visits))))
    planner = Planner()
    planner.place(0, 0)
    planner.plan({0: simulation.advance(share)})
    slots = (
        sum(len(slots) for slots in simulation.interpreter.slots.values()) - setup.graph.nodes
    )  # all have the initial
    held = slots + 2 * len(simulation.recording.under_way) + len(simulation.interpreter.output.members)
    rows, states = round(ROOM * max(planner.models.size, held)), planner.states.size
    if trainer.state_width and setup.optimizer_state != "visit":
        states = max(round(ROOM * states), 2 * setup.graph.nodes)
    return Need(rows, states, 4.0 * (rows * trainer.width + states * trainer.state_width))


def exact_need_of(run: PlannedRun, trainer: Trainer) -> Need:
    """Count what a run takes by planning a long way, stretch by stretch: runs of large models are short."""
    total = max(1, estimated_trainings([run]))
    stretches = -(-min(total, LOOK_FAR) // trainings_a_stretch(trainer.width))
    simulation = Simulation(replace(run.setup, keep_trace=False))
    planner = Planner(wave_policy(trainer))
    planner.place(0, 0)
    for stretch in range(1, stretches + 1):
        planner.plan({0: simulation.advance(min(1.0, LOOK_FAR / total) * stretch / stretches)})
    rows, states = math.ceil(ROOM * planner.models.size) + 1, math.ceil(ROOM * planner.states.size)
    return Need(rows, states, 4.0 * (rows * trainer.width + states * trainer.state_width))


def beside(trainer: Trainer, runs: Sequence[PlannedRun] = ()) -> float:
    """What a study takes besides its rows: the wave that is being trained, and the data.

    runs: all that may be in a wave together: it is no wider than they have models in training at once.
    """
    data = trainer.data_bytes
    if trainer.forms.by_row is not None:
        numbers = ROWS_BESIDE * trainer.width + STATES_BESIDE * trainer.state_width
        return 4.0 * numbers + POOLS * trainer.activations + data
    active = sum(run.setup.protocol.active_models(run.setup.graph.nodes) for run in runs) or WIDEST_WAVE
    wave = min(WIDEST_WAVE, wave_policy(trainer).widest, active)
    return 4.0 * COPIES_BESIDE * wave * (trainer.width + trainer.state_width) + data


def needs_of(trainer: Trainer, runs: Sequence[PlannedRun]) -> list[Need]:
    """What each run needs; repetitions need the same."""
    counted: dict[tuple[str, int], Need] = {}
    for run in runs:
        if kind_of(run) not in counted:
            counted[kind_of(run)] = need_of(run, trainer)
    return [counted[kind_of(run)] for run in runs]


def kind_of(run: PlannedRun) -> tuple[str, int]:
    """What the repetitions of one algorithm in one study have in common: its name and the graph."""
    return run.label, id(run.setup.graph)


def fitting_groups(trainer: Trainer, runs: Sequence[PlannedRun], memory: float | None = None) -> list[list[int]]:
    """Runs that fit into the memory at once, group after group; an error that says so if one alone does not."""
    limit = memory if memory is not None else free_memory(trainer.device)
    needs = needs_of(trainer, runs)
    left = limit - beside(trainer, runs)
    groups: list[list[int]] = []
    room = -1.0
    for index, need in enumerate(needs):
        if need.bytes > left:
            total = need.bytes + beside(trainer, runs)
            raise UnavailableError(
                f"{runs[index].label} needs about {in_gigabytes(total)} ({need.rows:,} models of {trainer.width:,} "
                f"numbers), but {in_gigabytes(limit)} may be used; take fewer nodes or walks, a smaller model, "
                "or allow more with --memory"
            )
        if need.bytes > room:
            groups.append([])
            room = left
        groups[-1].append(index)
        room -= need.bytes
    return groups


def needed(trainer: Trainer, groups: Sequence[Sequence[PlannedRun]], memory: float | None = None) -> str:
    """What a study will take, said before it starts."""
    runs = [run for group in groups for run in group]
    counted = {kind_of(run): need.bytes for run, need in zip(runs, needs_of(trainer, runs), strict=True)}
    most = beside(trainer, runs) + max(sum(counted[kind_of(run)] for run in group) for group in groups)
    limit = memory if memory is not None else free_memory(trainer.device)
    told = "" if limit == float("inf") else f" of {in_gigabytes(limit)} that may be used"
    return f"needs {in_gigabytes(most)}{told}" + (f", in {len(groups)} groups" if len(groups) > 1 else "")


def in_gigabytes(size: float) -> str:
    return f"{size / 1e9:.3g} GB" if size >= 1e8 else f"{size / 1e6:.3g} MB"


def run_in_groups(
    trainer: Trainer,
    runs: Sequence[PlannedRun],
    folders: Sequence[RunFolder] = (),
    *,
    resume: bool = False,
    memory: float | None = None,
    report: Callable[[Progress], None] | None = None,
    handle_ctrl_c: bool = True,
    watch: Watch | None = None,
) -> list[RunRecord]:
    """All runs to their end, in as few groups as fit.

    `folders`: where each keeps its records, if anywhere. `watch`: may end a run at any of its evaluations.
    """
    groups = fitting_groups(trainer, runs, memory)
    if report is not None:
        words = needed(trainer, [[runs[index] for index in group] for group in groups], memory)
        report(Progress(0, estimated_trainings(runs), 0, 0.0, 0.0, {}, words))
    chosen = [[runs[index] for index in group] for group in groups]
    parts = [Progress(0, estimated_trainings(group), 0, 0.0, 0.0, {}, "waiting") for group in chosen]
    records: list[RunRecord] = []
    for number, group in enumerate(chosen):

        def tell(progress: Progress, number: int = number) -> None:
            parts[number] = progress
            if report is not None:
                phase = f"{progress.phase}, group {number + 1} of {len(groups)}" if len(groups) > 1 else progress.phase
                report(replace(together(parts), phase=phase, rows=progress.rows, words=progress.words))

        places = [folders[index] for index in groups[number]] if folders else []
        runner = Runner(trainer, group, places, report=tell, handle_ctrl_c=handle_ctrl_c, watch=watch)
        if trainer.width > LARGE_MODEL or trainer.forms.in_place is not None:
            make_room(runner, needs_of(trainer, group))
        if resume:
            runner.resume()
        try:
            records += runner.run()
        except Interrupted as stop:
            raise Interrupted(records + stop.records, trainer) from stop
        give_back(runner)
    return records


def folders_of(study: StudyFolder, runs: Sequence[PlannedRun]) -> list[RunFolder]:
    """Where each run of a study keeps its records."""
    return [study.run(run.label, run.repetition) for run in runs]


def make_room(runner: Runner, needs: Sequence[Need]) -> None:
    """All rows at once: a matrix that grows is there twice while it is copied, and leaves holes in a GPU's memory.

    Where rows are trained in place it also moves, and its CUDA graphs are made anew.
    """
    runner.engine.executor.models.reserve(sum(need.rows for need in needs))
    runner.engine.executor.states.reserve(sum(need.state_rows for need in needs))


def give_back(runner: Runner) -> None:
    """The rows of a group, before the next one asks for its own; its objects refer to each other, so they linger."""
    executor = runner.engine.executor
    for matrix in (executor.models, executor.states):
        matrix.data = matrix.data.new_zeros((0, matrix.data.shape[1]))
    if executor.device.type == "cuda" and runner.trainer.width > LARGE_MODEL:
        torch.cuda.empty_cache()  # pieces of one size are no use for another


def together(parts: Sequence[Progress]) -> Progress:
    """The progress of all processes or groups as one."""
    losses: dict[str, list[float]] = {}
    for part in parts:
        for label, loss in part.loss.items():
            losses.setdefault(label, []).append(loss)
    return Progress(
        done=sum(part.done for part in parts),
        total=sum(part.total for part in parts),
        iteration=max(part.iteration for part in parts),
        time=max(part.time for part in parts),
        bits=max(part.bits for part in parts),
        loss={label: sum(values) / len(values) for label, values in losses.items()},
        phase=parts[0].phase,
    )
