"""How far a study is, in words."""

from __future__ import annotations

from walktalk.plots import Algorithms, in_words
from walktalk.protocols import known
from walktalk.studies import Progress as Report

NO_BREAK = "\u00a0"  # a space at which no line ends


def facts(report: Report, algorithms: Algorithms | None = None) -> str:
    """Virtual time, data sent and the loss of every algorithm, on one line."""
    losses = ", ".join(_losses(report, algorithms))
    return " · ".join([*where(report), f"loss: {losses}"] if losses else where(report))


def where(report: Report) -> list[str]:
    """What is done, up to which time, and how much was sent by then."""
    return [report.phase, in_words("time", report.time), f"{in_words('bits', report.bits)} sent"]


def losses_in_words(report: Report, algorithms: Algorithms | None = None) -> str:
    """The loss of every algorithm, in few letters; a line breaks between two of them, never within one."""
    each = [text.removeprefix("MW, ").replace(" ", NO_BREAK) for text in _losses(report, algorithms)]
    return "loss: " + " · ".join(each)


def _losses(report: Report, algorithms: Algorithms | None) -> list[str]:
    named = known(report.loss, algorithms)
    return [f"{named[label].title} {loss:.3g}" for label, loss in report.loss.items()]
