"""What a node has spent of its privacy: counted before anything is let out, in a file that outlives every restart.

A few releases are written down as spent before the first of them is made. So a node that dies loses what it had taken
out and not used, and never makes one that it forgets. The file stays when a run begins anew (`--fresh`): the data are
the same, and what was told of them is told. Who has other data there removes it.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

from walktalk.core.errors import StudyError
from walktalk.records import write_text
from walktalk.transforms.rules import Privacy, Spent

log = logging.getLogger(__name__)

NAME = "spent.json"  # in the node's folder
AT_ONCE = 16  # releases that are written down together


class PrivacyBudget:
    """Counts what a node lets out of what its data have taught it, and stops it where the budget is spent."""

    def __init__(self, folder: Path, privacy: Privacy) -> None:
        """
        - `folder`: the node's own.
        - `privacy`: how much noise there is, and how much may be spent.
        """
        self._path, self._privacy = folder / NAME, privacy
        self._before = read_spent(self._path)
        self._most = privacy.most(self._before)
        self._used = 0  # in this life
        self._written = 0  # of it, what the file knows
        self._told = False

    @property
    def empty(self) -> bool:
        """Whether nothing more may be let out."""
        return self._used >= self._most

    @property
    def epsilon(self) -> float:
        """What was spent in this life and in earlier ones, as an ε."""
        return self._privacy.epsilon(self._used, self._before)

    def spend(self) -> bool:
        """Whether one more release may be made; if so, it is spent."""
        if self._used < self._most and (self._used < self._written or self._write(self._used + AT_ONCE)):
            self._used += 1
            return True
        if self.empty and not self._told:
            self._told = True
            log.warning(
                "the privacy budget is spent: ε = %.3g at δ = %g; nothing more is learned from this node's data",
                self.epsilon,
                self._privacy.delta,
            )
        return False

    def close(self) -> None:
        """Put back what was taken out and not used."""
        if self._written > self._used:
            self._write(self._used)

    def _write(self, count: int) -> bool:
        count = min(count, self._most)
        spent = [*self._before, (self._privacy.noise, count)]
        try:
            write_text(self._path, json.dumps({"spent": spent}) + "\n")
        except (OSError, StudyError) as error:
            log.warning("%s cannot be written, so nothing is let out: %s", self._path, error)
            return False
        self._written = count
        return True


def read_spent(path: Path) -> Spent:
    """Read what was spent in earlier lives, releases by their noise; a `StudyError` where the file makes no sense."""
    if not path.exists():
        return ()
    try:
        found = json.loads(path.read_text())["spent"]
        spent: dict[float, int] = {}
        for noise, count in found:
            if not noise > 0 or count < 0:
                raise ValueError(f"{count} releases with noise {noise}")
            spent[float(noise)] = spent.get(float(noise), 0) + int(count)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StudyError(
            f"{path} does not say what was spent of this node's privacy ({error}); mend it, or remove it where the "
            "data are new"
        ) from error
    return tuple(sorted(spent.items()))
