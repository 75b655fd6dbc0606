"""Libraries that say much while they load: a person's mistake is to be one line, not the last of thirty."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

TALKERS = ("huggingface_hub", "datasets", "transformers")


@contextmanager
def quietly() -> Iterator[None]:
    """Their warnings, such as those of every retry, are not shown inside."""
    before = {name: logging.getLogger(name).level for name in TALKERS}
    for name in TALKERS:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
