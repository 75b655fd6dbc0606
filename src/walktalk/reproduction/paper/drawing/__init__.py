"""The paper's figures, drawn from the folders of their studies, and who wins in them."""

from walktalk.core.lazy import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)
