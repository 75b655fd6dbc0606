"""Protocols: pure state machines that say what each node does. One file each, headed by its paper and equations."""

from walktalk.core.lazy import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)

import walktalk.protocols.registry  # noqa: E402, F401  # who asks for a protocol by its name finds all of them
