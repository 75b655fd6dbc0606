"""Exceptions, named by whose mistake they are.

A `UserError` is a mistake in what a person wrote or asked for: the command line prints its one line and exits with
code 2, with no traceback. Anything else that escapes is our mistake and shows its traceback. A mistyped word is
answered with the known one that is nearest to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class WalktalkError(Exception):
    """The base of every exception that this package raises on purpose."""


class UserError(WalktalkError):
    """A mistake in what was asked for. The message says what is wrong and what to do instead, in one line."""


class SpecError(UserError):
    """A study's specification has an unknown key, a wrong type or an impossible value."""


class SettingError(SpecError, ValueError):
    """One setting that is unknown, missing or impossible; whoever knows where it stands puts its section before it."""


class GraphError(UserError):
    """A graph that cannot be used: disconnected, unreadable, or of impossible size."""


class ProtocolError(UserError):
    """A protocol that asks for what cannot be: a slot that is not there, a message that it did not declare."""


class ChainError(UserError):
    """A transition matrix that breaks Assumption 4: not stochastic, not symmetric, not irreducible."""


class DataError(UserError):
    """Data that is missing, damaged, or too small for what was asked."""


class ModelError(UserError):
    """A model, loss or optimizer that cannot be trained as asked."""


class StudyError(UserError):
    """A study folder that cannot be used: another study's, locked, or with a damaged checkpoint."""


class UnavailableError(UserError):
    """Something that this installation or machine lacks; the message names the extra or the option."""


def suggestion(word: object, known: Iterable[str]) -> str:
    """`"; did you mean 'x'?"`, or nothing where no known word is near."""
    near = get_close_matches(str(word).replace("-", "_"), list(known), n=1, cutoff=0.6)
    near = near or get_close_matches(str(word), list(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""
