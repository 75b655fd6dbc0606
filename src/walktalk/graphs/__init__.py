"""Topologies: who may talk to whom, and how far apart they are.

`build("erdos_renyi", 20, seed=1, p=0.3)` makes any family by name, as a study's specification does; every family is
also a function. All graphs are connected, or there is a `GraphError`. `TOPOLOGIES` lists them; `walktalk.register` adds
one's own.
"""

from walktalk.core.lazy import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__, public=True)
