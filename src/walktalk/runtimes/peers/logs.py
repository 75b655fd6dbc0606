"""How a node writes its log: lines for people, or one JSON object a line for whatever gathers logs."""

from __future__ import annotations

import datetime
import json
import logging
from typing import Literal, TypeAlias, get_args

from walktalk.errors import SpecError

LogFormat: TypeAlias = Literal["text", "json"]
FOR_PEOPLE = "%(asctime)s %(message)s"


class JsonLines(logging.Formatter):
    """time (UTC, ISO 8601), level, node, message, logger; `error` with a traceback where there is one."""

    def __init__(self, node: str) -> None:
        super().__init__()
        self._node = node

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        moment = datetime.datetime.fromtimestamp(record.created, datetime.timezone.utc)
        said = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "node": self._node,
            "message": record.getMessage().removeprefix(f"{self._node}: "),
            "logger": record.name,
        }
        if record.exc_info:
            said["error"] = self.formatException(record.exc_info)
        return json.dumps(said, ensure_ascii=False)


def write_logs(form: str, node: str) -> None:
    """From now on this process logs in this form, to stderr.

    Args:
        form: text or json.
        node: The node's name.
    """
    if form not in get_args(LogFormat):
        raise SpecError(f"--log-format {form!r} is not known; it is one of {', '.join(get_args(LogFormat))}")
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines(node) if form == "json" else logging.Formatter(FOR_PEOPLE))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.captureWarnings(form == "json")  # they would be lines of another form
