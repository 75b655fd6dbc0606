"""An entry of `faults`: what goes wrong in the simulator, and when."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import model_validator

from walktalk.errors import SpecError
from walktalk.runtimes.simulator import Fault
from walktalk.studies.spec.fields import Section, Whole, key


class FaultSpec(Section):
    """One thing that goes wrong: at a time, or again and again at a rate."""

    kind: Literal["kill", "revive", "pause", "partition", "slow", "lose", "swallow", "corrupt", "join", "leave"] = key(
        "kill", "kill, revive, pause, partition, slow, lose, swallow, corrupt, join, leave", "what happens"
    )
    at: float | None = key(None, "a number from 0 to 1e12 (seconds)", "when, in virtual time", ge=0, le=1e12)
    rate: float | None = key(
        None, "a number from 1e-12 to 1e6 (1/second)", "in place of at: how often, at random", ge=1e-12, le=1e6
    )
    seconds: float | None = key(
        None, "a number from 1e-9 to 1e12 (seconds)", "how long; for good if left out", ge=1e-9, le=1e12
    )
    node: Any = key(
        None,
        "a node's number, aggregator, random",
        "kill, revive, pause, slow, swallow, corrupt: whom it hits; leave: who leaves for good; join: who comes",
    )
    nodes: list[Whole] = key([], "a list of nodes", "partition: one side of it; corrupt: whom it hits, for node")
    link: list[Whole] | None = key(None, "two nodes", "slow: a link, in place of a node", min_length=2, max_length=2)
    factor: float = key(
        10.0, "a number from 1e-6 to 1e6", "slow: how many times slower; corrupt: larger", ge=1e-6, le=1e6
    )
    share: float | None = key(
        None, "a number from 0 to 1", "lose: of the messages, 0.1 unless given; swallow: of the walks, 1", ge=0, le=1
    )
    how: Literal["flip", "scale", "noise"] = key(
        "flip", "flip, scale, noise", "corrupt: signs of what is sent turned, models blown up, or noise on them"
    )

    @model_validator(mode="after")
    def _fits(self) -> FaultSpec:
        try:
            self.fault()
        except SpecError as error:
            raise ValueError(str(error)) from error
        return self

    def fault(self) -> Fault:
        """As the simulator takes it."""
        given: dict[str, Any] = self.model_dump(exclude={"nodes", "link"})
        link = (self.link[0], self.link[1]) if self.link is not None else None
        return Fault(**given, nodes=tuple(self.nodes), link=link)
