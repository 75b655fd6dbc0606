"""What errors say to somebody who calls us from Python: arguments, where the command line has options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from walktalk.errors import StudyError, UnavailableError

AS_ARGUMENTS = {
    r"another --out\b": "another folder",
    r"--engine (\w+)": r'engine="\1"',
    r"--(resume|overwrite)\b": r"\1=True",
    r"--(out|memory|workers|device)\b": r"\1",
}


@contextmanager
def as_arguments() -> Iterator[None]:
    """An error that names options of the command line names the arguments of Python that do the same."""
    try:
        yield
    except (StudyError, UnavailableError) as error:
        said = str(error)
        for option, argument in AS_ARGUMENTS.items():
            said = re.sub(option, argument, said)
        if said == str(error):
            raise
        raise type(error)(said) from error
