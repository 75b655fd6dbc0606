"""A trainer of Hugging Face as the trainer of a node: a callback, also for TRL's trainers and for PEFT's adapters.

    trainer = SFTTrainer(…, callbacks=[walktalk.transformers.SiteCallback("cluster.yaml", "lyon")])

Arguments, schedules and loggers stay the trainer's own.
"""

from __future__ import annotations

import importlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from walktalk.torch import TakesVisits

if TYPE_CHECKING:
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

    CALLBACK: type | None = TrainerCallback
else:
    CALLBACK = None  # without transformers this can be imported, and says so when it is used
    with suppress(ImportError):
        CALLBACK = importlib.import_module("transformers").TrainerCallback
    TrainerCallback = CALLBACK or object


NEEDS = "walktalk.transformers needs transformers: pip install 'walktalk[language]'"


class SiteCallback(TakesVisits, TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Trains the models that come to a node, a visit after the other, and stops the trainer when the run is over.

    Where a model is frozen and has adapters, the study's file says what travels: the adapters alone, as
    `walktalk.torch.write_start` writes them. What the trainer logs and measures goes to the node with every visit.
    Let `max_steps` be larger than the run may take: a trainer that ends by itself leaves the run.
    """

    lacks: ClassVar[str] = "" if CALLBACK is not None else NEEDS
    _due = False  # whether the visit is over, once all is measured

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: Any
    ) -> None:
        """Wait for the first model."""
        if not self.begin(more["model"], more.get("optimizer")):
            control.should_training_stop = True

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: Any) -> None:
        """Count an optimizer step; what is measured right after the last of a visit still belongs to it."""
        assert self.visits is not None
        self._due = self.visits.count(samples=args.train_batch_size * args.gradient_accumulation_steps)
        if self._due and not control.should_log and not control.should_evaluate:
            self._next(control)

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: Any) -> None:
        """Take in the training loss."""
        logs = more.get("logs") or {}
        if self.visits is not None and "loss" in logs:
            self.visits.report(train_loss=logs["loss"])
            if self._due and not control.should_evaluate:
                self._next(control)

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: Any) -> None:
        """Take in what the trainer has measured."""
        if self.visits is not None:
            self.visits.report(**(more.get("metrics") or {}))
            if self._due:
                self._next(control)

    def _next(self, control: TrainerControl) -> None:
        """Give the model back and load the next one."""
        assert self.visits is not None
        self._due = False
        if not self.visits.next():
            control.should_training_stop = True

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: Any) -> None:
        """Give the last model back."""
        if self.visits is not None:
            self.visits.close()
