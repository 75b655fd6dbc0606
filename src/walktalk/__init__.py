"""walktalk: decentralized training with random walks and gossip. Simulate it, plan it, run it.

    import walktalk as wt

    graph = wt.graphs.erdos_renyi(20, p=0.3, seed=1)
    task = wt.tasks.digits(nodes=20, alpha=1.0, seed=0)
    run = wt.train(task, wt.MultiWalk(walks=4), graph, stop=wt.Stop(iterations=3000))
    run.history

Names are imported when they are first used: the command line starts in a moment, without waiting for torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from walktalk import lazy
from walktalk.amx import avoid_broken_amx
from walktalk.mkl import keep_the_same_bits

__version__ = "0.1.0"

avoid_broken_amx()
keep_the_same_bits()

if TYPE_CHECKING:
    from walktalk import advisor, chains, graphs, plots, theory
    from walktalk.advisor import Advice
    from walktalk.codecs import Codec
    from walktalk.errors import UserError, WalktalkError
    from walktalk.graphs import Graph
    from walktalk.interactive import Callback, Compared, MLflow, Run, TensorBoard, WandB, advise, compare, train
    from walktalk.learning import Schedule, Task, adapters, lora, split, tasks
    from walktalk.plugins import register
    from walktalk.protocols import (
        AsyncGossip,
        Centralized,
        MultiWalk,
        Protocol,
        SyncGossip,
        compressed,
        private,
        screened,
    )
    from walktalk.runtimes.meaning import Evaluate, Stop
    from walktalk.runtimes.simulator import Fault, NetworkTiming, PoissonTiming
    from walktalk.screens import ScreenRule
    from walktalk.studies import (
        SGD,
        Adam,
        AdamW,
        Forecast,
        Optimizer,
        StudyResult,
        StudySpec,
        forecast,
        load_spec,
        run_study,
    )

_HOMES = {
    "": ("advisor", "chains", "graphs", "plots", "theory"),
    "advisor": ("Advice",),
    "codecs": ("Codec",),
    "errors": ("UserError", "WalktalkError"),
    "graphs": ("Graph",),
    "interactive": ("Callback", "Compared", "MLflow", "Run", "TensorBoard", "WandB", "advise", "compare", "train"),
    "learning": ("Schedule", "Task", "adapters", "lora", "split", "tasks"),
    "plugins": ("register",),
    "protocols": (
        "AsyncGossip",
        "Centralized",
        "MultiWalk",
        "Protocol",
        "SyncGossip",
        "compressed",
        "private",
        "screened",
    ),
    "runtimes.meaning": ("Evaluate", "Stop"),
    "runtimes.simulator": ("Fault", "NetworkTiming", "PoissonTiming"),
    "screens": ("ScreenRule",),
    "studies": (
        "SGD",
        "Adam",
        "AdamW",
        "Forecast",
        "Optimizer",
        "StudyResult",
        "StudySpec",
        "forecast",
        "load_spec",
        "run_study",
    ),
}
__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "Advice",
    "AsyncGossip",
    "Callback",
    "Centralized",
    "Codec",
    "Compared",
    "Evaluate",
    "Fault",
    "Forecast",
    "Graph",
    "MLflow",
    "MultiWalk",
    "NetworkTiming",
    "Optimizer",
    "PoissonTiming",
    "Protocol",
    "Run",
    "Schedule",
    "ScreenRule",
    "Stop",
    "StudyResult",
    "StudySpec",
    "SyncGossip",
    "Task",
    "TensorBoard",
    "UserError",
    "WalktalkError",
    "WandB",
    "__version__",
    "adapters",
    "advise",
    "advisor",
    "chains",
    "compare",
    "compressed",
    "forecast",
    "graphs",
    "load_spec",
    "lora",
    "plots",
    "private",
    "register",
    "run_study",
    "screened",
    "split",
    "tasks",
    "theory",
    "train",
]


__getattr__ = lazy.attributes(__name__, _HOMES)
__dir__ = lazy.listing(__all__)
