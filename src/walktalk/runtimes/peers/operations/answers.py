"""What nodes answer to an operator, read as any stranger's word: a bad node must not lock the operator out.

An answer is an object in JSON, in limits. Its texts are made printable, so that none moves a terminal. A field that
operators use has a kind (`FIELDS`); where it is of another kind it is left out, and the answer complains of it itself,
with the node's name. So whoever uses answers finds what it expects, or nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from walktalk.core.untrusted import Limits, Refused, parsed_json, shown

ANSWER = Limits(size=8 << 20, depth=16, items=200_000)
LONGEST_TEXT = 20_000  # characters: an entry of a roster has a certificate in it
MOST = 2**63  # of anything that is counted

Check = Callable[[Any], bool]


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _whole(value: Any) -> bool:
    return type(value) is int and -MOST < value < MOST


def _count(value: Any) -> bool:
    return _whole(value) and value >= 0


def _number(value: Any) -> bool:
    return _whole(value) or (isinstance(value, float) and math.isfinite(value))


def _length(value: Any) -> bool:
    return _number(value) and value >= 0


def _optional(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _list_of(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _by_name(check: Check) -> Check:
    return lambda value: isinstance(value, dict) and all(map(check, value.values()))


def _any(value: Any) -> bool:
    return True


def _copy(value: Any) -> bool:
    return isinstance(value, dict) and _text(value.get("role")) and _whole(value.get("key"))


FIELDS: Mapping[str, Check] = {
    "about": _by_name(_text),
    "aggregates": _flag,
    "aggregates_since": _optional(_length),
    "alive": _list_of(_whole),
    "bandwidth": _optional(_length),
    "at_least": _count,
    "best": _optional(lambda value: _copy(value) and _text(value.get("measure")) and _number(value.get("value"))),
    "bytes_sent": _count,
    "certificate_ends": _optional(_text),
    "checkpoint_age": _optional(_length),
    "complaints": _list_of(_text),
    "copy": _optional(_copy),
    "disk": _optional(lambda value: _list_of(_count)(value) and len(value) == 2),
    "diverged": _any,
    "done": _flag,
    "dropped": _by_name(_count),
    "epsilon": _optional(_length),
    "files": _by_name(_count),
    "hangs": _flag,
    "iterations": _count,
    "leaves": _flag,
    "loss": _optional(_number),
    "metrics": _by_name(_optional(_number)),
    "missing": _list_of(_text),
    "name": _text,
    "neighbours": _by_name(_flag),
    "node": _whole,
    "neighbours_about": _by_name(lambda value: isinstance(value, dict)),
    "others": _by_name(_list_of(_count)),
    "refused": lambda value: _text(value) or _by_name(_count)(value),  # why; in `status`: how much, by sender
    "relay": _any,
    "resent": _count,
    "roster": _list_of(lambda entry: isinstance(entry, list)),
    "seconds": _length,
    "site": _text,
    "speaks": _list_of(_whole),
    "state": _text,
    "strangers": _by_name(_text),
    "taken": _flag,
    "takes_part": _list_of(_text),
    "term": _whole,
    "there": _list_of(_whole),
    "total_iterations": _count,
    "training_seconds": _optional(_length),
    "trains": _optional(_text),
    "unacknowledged": _any,
    "version": _text,
    "walks": _list_of(_whole),
    "warnings": _list_of(_text),
    "why": _text,
    "wire_bytes": _count,
}
"""What operators use of answers, and what it has to be."""


def read_answer(data: bytes) -> dict[str, Any]:
    """An answer as it may be used; a complaint in it names what was left out. Nonsense as a whole is a complaint only.

    Args:
        data: The answer as it came.
    """
    try:
        said = _printable(parsed_json(data, ANSWER, nan=None))
    except Refused as refused:
        return {"complaints": [f"its answer is refused: {refused}"]}
    if not isinstance(said, dict):
        return {"complaints": [f"its answer is refused: {type(said).__name__} in place of an object"]}
    wrong = [name for name, value in said.items() if name in FIELDS and not FIELDS[name](value)]
    found = {name: value for name, value in said.items() if name not in wrong}
    if wrong:
        complaint = f"part of its answer is refused: {', '.join(wrong)}"
        found["complaints"] = [*found.get("complaints", ()), complaint]
    return found


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.isprintable() and len(value) <= LONGEST_TEXT else shown(value, LONGEST_TEXT)
    if isinstance(value, list):
        return [_printable(one) for one in value]
    if isinstance(value, dict):
        return {shown(key): _printable(one) for key, one in value.items()}
    return value
