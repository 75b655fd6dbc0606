"""Callbacks: whoever wants to see a run as it goes, and perhaps to end it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, TypeAlias

from walktalk.errors import SpecError, UnavailableError
from walktalk.records import HistoryRow
from walktalk.studies import Progress, StudySpec
from walktalk.studies.spec import spec_mapping


class Callback:
    """Sees a run, or all runs of a comparison, as they go. A subclass overrides what it wants to see."""

    watches_only: ClassVar[bool] = False
    """True for one that never ends a run: then runs may also be done in other processes."""

    def on_start(self, settings: Mapping[str, Any]) -> None:
        """Before the first training.

        Args:
            settings: The whole study, with the keys of a specification.
        """

    def on_evaluation(self, row: Mapping[str, Any]) -> bool | None:
        """At every evaluation; True ends this run here, with the model that was measured.

        Args:
            row: What was measured: algorithm, repetition, iteration, time, bits, train_loss, test_accuracy and so on.
        """
        return None

    def on_warning(self, words: str) -> None:
        """When something goes wrong, such as a loss that is not a number.

        Args:
            words: What, in one line.
        """

    def on_progress(self, progress: Progress) -> None:
        """Now and then.

        Args:
            progress: How far things are.
        """

    def on_end(self, result: Any) -> None:
        """After the last evaluation; also where somebody has stopped it before its time.

        Args:
            result: What `train` or `compare` gives back.
        """

    def close(self) -> None:
        """The very last, also after an error: let go what is open."""


class OnEvaluation(Callback):
    """A function of a row in place of a callback."""

    def __init__(self, function: Callable[[Mapping[str, Any]], bool | None]) -> None:
        self.function = function

    def on_evaluation(self, row: Mapping[str, Any]) -> bool | None:
        return self.function(row)


GivenCallback: TypeAlias = Callback | Callable[[Mapping[str, Any]], bool | None]


def row_mapping(row: HistoryRow) -> dict[str, Any]:
    """A row of a history by name, with all that was measured."""
    found = row._asdict()
    further = found.pop("further") or {}
    return {**found, **further}


class Audience:
    """All callbacks of a study."""

    def __init__(self, given: GivenCallback | Sequence[GivenCallback]) -> None:
        listed = list(given) if isinstance(given, (list, tuple)) else [given]
        self.members = [_callback(one) for one in listed]

    @property
    def may_end(self) -> bool:
        """Whether any of them may end a run."""
        return any(not one.watches_only for one in self.members)

    def evaluated(self, row: HistoryRow) -> bool:
        """Show a row to all; whether one of them ends the run."""
        told = row_mapping(row)
        answers = [one.on_evaluation(told) for one in self.members]  # all see it, whatever the first says
        return any(answer is True for answer in answers)

    def told(self, progress: Progress, rows: bool) -> None:
        """A report of a study; its rows are shown where nobody has shown them before."""
        for row in progress.rows if rows else ():
            if self.evaluated(row):
                raise UnavailableError(
                    "callbacks: one of them ends a run, which it can only in this process; leave out workers, and use "
                    "engine='sim'"
                )
        for one in self.members:
            for words in progress.words:
                one.on_warning(words)
            one.on_progress(progress)

    def ended(self, result: Any) -> None:
        """Show the result to all."""
        for one in self.members:
            one.on_end(result)

    @contextmanager
    def seated(self, spec: StudySpec) -> Iterator[None]:
        """From the start of a study to its end, however it ends."""
        try:
            for one in self.members:
                one.on_start(spec_mapping(spec))
            yield
        finally:
            for one in self.members:
                one.close()


def _callback(one: Any) -> Callback:
    if isinstance(one, type) and issubclass(one, Callback):
        raise SpecError(f"callbacks: {one.__name__} is a class; give an object, as in {one.__name__}()")
    if isinstance(one, Callback):
        return one
    if callable(one):
        return OnEvaluation(one)
    raise SpecError(f"callbacks: {one!r} is not possible; allowed: wt.Callback objects, or functions of a row")


def warn(words: Sequence[str]) -> None:
    """As warnings, at once."""
    for one in words:
        warnings.warn(one, stacklevel=2)
