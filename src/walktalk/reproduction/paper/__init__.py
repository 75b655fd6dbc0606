"""The paper's figures and tables as studies: which runs each needs, at the paper's scale or in small."""

from walktalk.core.lazy import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)
