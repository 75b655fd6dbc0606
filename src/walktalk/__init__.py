"""walktalk: decentralized training with random walks and gossip. Simulate it, plan it, run it.

    import walktalk as wt

    graph = wt.graphs.erdos_renyi(20, p=0.3, seed=1)
    task = wt.tasks.digits(nodes=20, alpha=1.0, seed=0)
    run = wt.train(task, wt.MultiWalk(walks=4), graph, stop=wt.Stop(iterations=3000))
    run.history

Names are imported when they are first used: the command line starts in a moment, without waiting for torch.
"""

from walktalk.core.cpu import set_up_libraries
from walktalk.core.lazy import front_door
from walktalk.core.old_names import find_moved_modules

__version__ = "0.2.0"

set_up_libraries()
find_moved_modules()

__getattr__, __dir__, __all__ = front_door(__name__, __file__, public=True)
__all__ += ["__version__"]
