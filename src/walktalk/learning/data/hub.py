"""The Hugging Face hub: whether it answers, asked once and briefly.

Its clients ask again and again for every file before they give up, which is half a minute of silence for a data set and
a whole one for a model, and none of them can be told to ask less often.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PATIENCE = 5.0  # seconds until it has to answer
ERASE_LINE = "\r\x1b[2K"  # whatever stands on the terminal's current line


@contextmanager
def hub(what: str) -> Iterator[bool]:
    """Inside, `what` comes from the hub or its cache here; from the cache alone if the hub does not answer.

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
    """What the variable HF_HUB_OFFLINE does, which is read at import."""
    for module, value in zip(switches, values, strict=True):
        module.HF_HUB_OFFLINE = value


def answers() -> bool:
    """Whether the hub says anything at all."""
    from huggingface_hub import constants, get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=PATIENCE)
    except Exception:  # of the client for HTTP, which differs between versions
        return False
    return True


def say(text: str) -> None:
    """A line for the person who waits."""
    start = ERASE_LINE if sys.stderr.isatty() else ""
    print(f"{start}{text}", file=sys.stderr, flush=True)
