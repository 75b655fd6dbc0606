"""What a person does from Python or sees on a terminal: `train`, `compare`, `advise`, results, progress, callbacks."""

from typing import TYPE_CHECKING

from walktalk import lazy

if TYPE_CHECKING:
    from walktalk.interactive.advising import advise
    from walktalk.interactive.callbacks import Audience, Callback
    from walktalk.interactive.compared import Compared
    from walktalk.interactive.comparing import compare
    from walktalk.interactive.loggers import MLflow, TensorBoard, WandB
    from walktalk.interactive.progress import Lines, shown_progress
    from walktalk.interactive.run import Run
    from walktalk.interactive.training import train
    from walktalk.interactive.waiting import getting_ready
    from walktalk.interactive.words import losses_in_words

_HOMES = {
    "advising": ("advise",),
    "callbacks": ("Audience", "Callback"),
    "compared": ("Compared",),
    "comparing": ("compare",),
    "loggers": ("MLflow", "TensorBoard", "WandB"),
    "progress": ("Lines", "shown_progress"),
    "run": ("Run",),
    "training": ("train",),
    "waiting": ("getting_ready",),
    "words": ("losses_in_words",),
}

__all__ = [
    "Audience",
    "Callback",
    "Compared",
    "Lines",
    "MLflow",
    "Run",
    "TensorBoard",
    "WandB",
    "advise",
    "compare",
    "getting_ready",
    "losses_in_words",
    "shown_progress",
    "train",
]

__getattr__ = lazy.attributes(__name__, _HOMES)
__dir__ = lazy.listing(__all__)
