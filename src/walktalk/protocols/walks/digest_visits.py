"""What DIGEST does at a node, whether or not anything fails (`digest` has the rule)."""

from __future__ import annotations

from walktalk.protocols.effects import AGGREGATE, INITIAL, MEMBER, Combine, Effect, Note, Record, Train, absorb

MODEL, BASE, TRAVELLER = "model", "base", "traveller"  # x_v, b_v and y
KIND = "traveller"


def begun(has_traveller: bool) -> list[Effect]:
    """All models are the initial one."""
    begin: list[Effect] = [Combine(slot, {INITIAL: 1.0}) for slot in (MODEL, BASE)]
    if has_traveller:
        begin += [Combine(TRAVELLER, {INITIAL: 1.0}), Record(AGGREGATE, 0, TRAVELLER)]
    return begin


def trains_on(node: int, steps: int) -> list[Effect]:
    """The node's own model is trained, again and again."""
    return [Record(MEMBER, node, MODEL), Train(MODEL, steps=steps)]


def gathered(nodes: int, visit: int) -> list[Effect]:
    """What was learned here since the last visit goes into the travelling model, and that one takes its place."""
    return [
        absorb(TRAVELLER, TRAVELLER, 1.0 / nodes, MODEL, BASE),
        Combine(MODEL, {TRAVELLER: 1.0}),
        Combine(BASE, {TRAVELLER: 1.0}),
        Note("counted", walk=1, number=visit),
        Record(AGGREGATE, visit, TRAVELLER),
    ]
