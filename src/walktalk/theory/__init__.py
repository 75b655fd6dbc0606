"""The paper's theorems and tables for any graph: bounds in iterations, bits and wall-clock time.

`network(graph)` gathers what the bounds need of a graph, `Problem` what they need of a task. `theorem1`, `theorem2` and
`theorem3` give bounds with the constants of the proofs, for the step size that the lemmas allow; `theorem1_order` and
its sisters are the plain expressions inside the O(·). `multi_walk_by_age` stands in for Theorem 1 where graphs are
compared. `TABLES` are the paper's tables as printed, `table` gives their numbers, and `summary` gathers all of it for
one graph.
"""

from walktalk.core.lazy import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__, public=True)
