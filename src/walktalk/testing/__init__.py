"""For those who write protocols: the conformance suite, and what it is made of.

`check_protocol(PushSum())` asks a protocol everything that our own are asked, in virtual time and on real nodes.
"""

from walktalk.core.lazy import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)
