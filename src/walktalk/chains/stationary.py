"""Where a chain is in the long run, and how long it takes to come back: for chains that favour some nodes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from walktalk.chains.chain import Chain

Floats = npt.NDArray[np.float64]


def stationary(chain: Chain) -> Floats:
    """π with π P = π: the share of its steps that a walk is at each node; the chain has to be irreducible.

    Args:
        chain: Any chain; of one that is doubly stochastic this is 1/V everywhere.
    """
    from scipy.sparse import csc_array, eye_array, vstack
    from scipy.sparse.linalg import spsolve

    nodes = chain.nodes
    balance = csc_array(chain.matrix.T - eye_array(nodes)).tocsr()
    # One of the equations follows from the others; in its place all shares sum to 1.
    system = csc_array(vstack([balance[: nodes - 1, :], csc_array(np.ones((1, nodes)))]))
    right = np.zeros(nodes)
    right[-1] = 1.0
    return np.asarray(spsolve(system, right), dtype=np.float64).reshape(nodes)


def mean_return_times(chain: Chain) -> Floats:
    """Steps from a node until the walk is there again, on average: 1 / π (Kac 1947).

    Args:
        chain: An irreducible chain.
    """
    return 1.0 / stationary(chain)
