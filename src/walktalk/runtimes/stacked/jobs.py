"""The operations of a stretch as a graph: what each waits for, and how long a chain of trainings hangs on it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from walktalk.runtimes.simulator import NO_STATE, NO_VALUE, Chunk, CombineOp, EncodeOp, MixOp, Op, ScreenOp, TrainOp


class Value:
    """A model or an optimizer state, while it is planned with."""

    __slots__ = ("chain", "is_state", "readers", "row", "uses")

    def __init__(self, is_state: bool, uses: int = 0) -> None:
        self.is_state = is_state
        self.uses = uses  # reads still to come, plus one for what lives on afterwards
        self.chain = 0  # trainings in the longest chain that starts from it
        self.readers: list[Job] = []  # the last first
        self.row = -1  # where it is, once it is made


class Job:
    """An operation that waits for its inputs."""

    __slots__ = ("chain", "inputs", "is_training", "missing", "op", "order", "outputs", "run")

    def __init__(self, run: int, op: Op, order: int, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        self.run = run
        self.op = op
        self.order = order  # in the schedule: breaks ties
        self.inputs = inputs
        self.outputs = outputs
        self.is_training = isinstance(op, TrainOp)
        self.chain = max((value.chain for value in outputs), default=0) + self.is_training
        self.missing = 0  # inputs that are not made yet


def inputs_of(op: Op) -> Iterable[int]:
    """The values that an operation reads, each once; of a training its model, then what is beside it, then a state."""
    if isinstance(op, TrainOp):
        if op.correction == NO_VALUE and op.anchor == NO_VALUE:
            return (op.source,) if op.state_in == NO_STATE else (op.source, -1 - op.state_in)
        beside = (op.source, *(value for value in (op.correction, op.anchor) if value != NO_VALUE))
        return dict.fromkeys(beside if op.state_in == NO_STATE else (*beside, -1 - op.state_in))
    if isinstance(op, EncodeOp):
        return (op.source,)
    if isinstance(op, ScreenOp):
        return dict.fromkeys((op.own, *(number for number, _ in op.others)))
    if isinstance(op, CombineOp):
        return [number for number, _ in op.terms]
    if isinstance(op, MixOp):
        return dict.fromkeys(op.sources)
    return dict.fromkeys(number for terms in (op.aggregate, *op.members) for number, _ in terms)


def outputs_of(op: Op) -> Sequence[int]:
    """The values that an operation makes."""
    if isinstance(op, TrainOp):
        return (op.out,) if op.state_out == NO_STATE else (op.out, -1 - op.state_out)
    if isinstance(op, CombineOp | EncodeOp | ScreenOp):
        return (op.out,)
    return op.outs if isinstance(op, MixOp) else ()


def jobs_of(run: int, chunk: Chunk, first: int = 0) -> tuple[list[Job], dict[int, Value]]:
    """The operations that an evaluation or a later stretch depends on, in order, and the values they touch.

    The others need not be done at all. Walking backwards, what is needed and the longest chain that hangs on it are
    known when an operation is reached. An optimizer state s has the number −1 − s.
    """
    values = {number: Value(False, uses=1) for number in chunk.live}
    values.update({-1 - state: Value(True, uses=1) for state in chunk.live_states})
    jobs: list[Job] = []
    order = first + len(chunk.ops)
    for op in reversed(chunk.ops):
        order -= 1
        made = outputs_of(op)
        if made and not any(number in values for number in made):
            continue
        outputs = [values.get(number) or values.setdefault(number, Value(number < 0)) for number in made]
        inputs = [values.get(number) or values.setdefault(number, Value(number < 0)) for number in inputs_of(op)]
        job = Job(run, op, order, inputs, outputs)
        for value in inputs:
            value.uses += 1
            value.readers.append(job)
            if value.chain < job.chain:
                value.chain = job.chain
        jobs.append(job)
    jobs.reverse()
    return jobs, values
