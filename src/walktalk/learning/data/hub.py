"""The Hugging Face hub: whether it answers, asked once and briefly, and what its libraries say while they load.

Its clients ask again and again for every file before they give up, which is half a minute of silence for a data set
and a whole one for a model, and none of them can be told to ask less often.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

PATIENCE = 5.0  # seconds until it has to answer
ERASE_LINE = "\r\x1b[2K"  # whatever stands on the terminal's current line


@contextmanager
def hub(what: str) -> Iterator[bool]:
    """A context in which `what` comes from the hub or its cache here; from the cache alone if the hub does not answer.

    Says what is being fetched, since that may take long; gives whether the hub answers.
    """
    say(f"getting {what} from the Hugging Face hub, or its cache here …")
    if answers():
        yield True
        return
    switches = [
        module for name in ("huggingface_hub.constants", "datasets.config") if (module := sys.modules.get(name))
    ]
    before = [getattr(module, "HF_HUB_OFFLINE", False) for module in switches]
    set_offline(switches, [True] * len(switches))
    try:
        yield False
    finally:
        set_offline(switches, before)


def set_offline(switches: list[Any], values: list[bool]) -> None:
    """Does what the variable HF_HUB_OFFLINE does, which is read at import."""
    for module, value in zip(switches, values, strict=True):
        module.HF_HUB_OFFLINE = value


def answers() -> bool:
    """Whether the hub answers at all."""
    from huggingface_hub import constants, get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=PATIENCE)
    except Exception:  # of the client for HTTP, which differs between versions
        return False
    return True


def say(text: str) -> None:
    """Prints a line for the person who waits."""
    start = ERASE_LINE if sys.stderr.isatty() else ""
    print(f"{start}{text}", file=sys.stderr, flush=True)


# Libraries that say much while they load: a person's mistake is to be one line, not the last of thirty.

TALKERS = ("huggingface_hub", "datasets", "transformers")


@contextmanager
def quietly() -> Iterator[None]:
    """Hides warnings of these libraries, such as those of every retry, and the progress of loading weights."""
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
    """Hides transformers' own progress bars; those of the hub's downloads, which take long, stay as they are."""
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
