"""A Lightning trainer as the trainer of a node: a callback, and the script stays as it is.

    trainer = Trainer(max_epochs=-1, callbacks=[walktalk.lightning.SiteCallback("cluster.yaml", "lyon")])

Strategies, devices and loggers stay the trainer's own.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

from walktalk.torch import TakesVisits

if TYPE_CHECKING:
    from lightning.pytorch import Callback, LightningModule, Trainer

    CALLBACK: type | None = Callback
else:
    CALLBACK = None  # without Lightning this can be imported, and says so when it is used
    for library in ("lightning.pytorch", "pytorch_lightning"):
        with suppress(ImportError):
            CALLBACK = CALLBACK or importlib.import_module(library).Callback
    Callback = CALLBACK or object

LOSS = "train_loss"  # which the steps of a visit tell by themselves


NEEDS = "walktalk.lightning needs Lightning: pip install 'walktalk[lightning]'"


class SiteCallback(TakesVisits, Callback):  # type: ignore[misc, unused-ignore]
    """Trains the models that come to a node, a visit after the other, and stops the trainer when the run is over.

    Strategies and devices are the trainer's; with several processes the first talks to the node. What the trainer
    measures (`self.log`) goes to the node with every visit. Let the trainer be the one to go on: `max_epochs=-1`.
    """

    lacks: ClassVar[str] = "" if CALLBACK is not None else NEEDS
    _before = 0  # optimizer steps at the last look

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Wait for the first model."""
        self._before = trainer.global_step
        if not self.begin(pl_module, next(iter(trainer.optimizers), None)):
            trainer.should_stop = True

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count a step, where the optimizer has made one."""
        if self.visits is None or trainer.global_step == self._before:
            return
        self._before = trainer.global_step
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        if not self.visits.step(loss=loss, samples=trainer.accumulate_grad_batches * samples_in(batch)):
            trainer.should_stop = True

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take in what the trainer has measured."""
        if self.visits is not None and not trainer.sanity_checking:
            self.visits.report(**{name: value for name, value in trainer.callback_metrics.items() if name != LOSS})

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Give the last model back."""
        if self.visits is not None:
            self.visits.close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Tell the node why the script ends."""
        if self.visits is not None:
            self.visits.close(type(exception), exception, None)


def samples_in(batch: Any) -> int:
    """How many samples a batch has: the length of the first array in it; 0 where there is none."""
    if isinstance(batch, Tensor):
        return len(batch) if batch.dim() else 0
    inside = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, (list, tuple)) else ()
    return next((count for one in inside if (count := samples_in(one))), 0)
