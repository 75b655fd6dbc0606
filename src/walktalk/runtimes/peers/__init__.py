"""The real engine: one process a node, on any number of machines, over Zenoh, with no head."""

from typing import Any

from walktalk.core.errors import UnavailableError
from walktalk.core.lazy import front_door

_found, __dir__, __all__ = front_door(__name__, __file__)
EXTRA = ("cryptography", "zenoh", "prometheus_client")


def __getattr__(name: str) -> Any:
    try:
        return _found(name)
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] not in EXTRA:
            raise
        raise UnavailableError(f"real nodes need {error.name}: pip install 'walktalk[peers]'") from error
