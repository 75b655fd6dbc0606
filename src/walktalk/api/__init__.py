"""What a person does from Python or sees on a terminal: `train`, `compare`, `advise`, results, progress, callbacks."""

from walktalk.core.lazy import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__, public=True)
