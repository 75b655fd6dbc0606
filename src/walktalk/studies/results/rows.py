"""What a run has noted and measured, as rows and columns of its records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from walktalk.learning import Trainer
from walktalk.records import RUN_COLUMNS, TRACE_COLUMNS, HistoryRow, RunFolder, TraceRow, save_checkpoint, write_history
from walktalk.runtimes.stacked import Measurement
from walktalk.studies.building import RunRecord


def history_row(label: str, repetition: int, m: Measurement) -> HistoryRow:
    """What was measured at one moment of a run, as a row of its history."""
    spent = {} if m.op.epsilon is None else {"epsilon": m.op.epsilon}
    return HistoryRow(
        algorithm=label,
        repetition=repetition,
        iteration=m.op.iteration,
        time=m.op.time,
        bits=int(m.op.bits),
        train_loss=m.train_loss,
        test_accuracy=m.test_accuracy,
        consensus=m.consensus,
        model_bits=int(m.op.model_bits),
        mean_train_loss=m.mean_train_loss,
        mean_test_accuracy=m.mean_test_accuracy,
        further={**m.further, **spent} or None,
    )


def write_run(here: RunFolder, record: RunRecord, trainer: Trainer) -> None:
    """A finished run's history and model. The model is the last that a run writes: it says that the run is whole."""
    assert record.output is not None
    write_history(here.history, record.history, RUN_COLUMNS)
    save_model(here.model, record, trainer)


def save_model(path: Path, record: RunRecord, trainer: Trainer) -> None:
    """The run's model, by the names of the module's own state dict."""
    assert record.output is not None
    state = trainer.module(record.output).state_dict()
    tensors = {name: tensor.detach().clone() for name, tensor in state.items()}
    save_checkpoint(path, tensors, {"run": record.label})


def trace_columns(rows: list[TraceRow]) -> dict[str, Sequence[object]]:
    """The rows as columns; what a row says in detail becomes JSON."""
    columns = zip(*rows, strict=True) if rows else [()] * len(TRACE_COLUMNS)
    table: dict[str, Sequence[object]] = dict(zip(TRACE_COLUMNS, columns, strict=True))
    # Here, not in a function: there are millions of them, and most are strings.
    table["detail"] = [d if d.__class__ is str else _TEXTS[tuple(d.items())] for d in table["detail"]]  # type: ignore[attr-defined]
    return table


class _Texts(dict[tuple[tuple[str, object], ...], str]):
    """Details as JSON: the same few combinations come again and again."""

    def __missing__(self, items: tuple[tuple[str, object], ...]) -> str:
        if len(self) >= MOST_TEXTS:
            self.clear()
        text = self[items] = json.dumps(dict(items))
        return text


MOST_TEXTS = 4096
_TEXTS = _Texts()
