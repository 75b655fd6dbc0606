"""Codecs: smaller forms of a model for the wire; a protocol names one in `Encode` and its `messages`."""

from walktalk.core.lazy import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)

import walktalk.transforms.codecs.number_codecs  # noqa: E402, F401  # who asks for one by its name finds all of them
