"""Libraries that say much while they load: a person's mistake is to be one line, not the last of thirty."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

TALKERS = ("huggingface_hub", "datasets", "transformers")


@contextmanager
def quietly() -> Iterator[None]:
    """Their warnings, such as those of every retry, are not shown inside, nor how far the loading of weights is."""
    before = {name: logging.getLogger(name).level for name in TALKERS}
    for name in TALKERS:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        with no_bar_of_weights():
            yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)


@contextmanager
def no_bar_of_weights() -> Iterator[None]:
    """transformers' own bars are off inside; those of the hub's downloads, which take long, stay as they are."""
    if "transformers" not in sys.modules:
        yield
        return
    bars: Any = import_module("transformers.utils.logging")
    hub: Any = import_module("huggingface_hub.utils")
    downloads, weights = not hub.are_progress_bars_disabled(), bars.is_progress_bar_enabled()
    bars.disable_progress_bar()  # and those of downloads along with it
    if downloads:
        hub.enable_progress_bars()
    try:
        yield
    finally:
        if weights:
            bars.enable_progress_bar()
