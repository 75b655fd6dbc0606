"""What came out of one round, and what of it did not hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from walktalk.studies.chaos.loss import Comparison

TOLERANCE = 1.1  # of the undisturbed run's loss
KEPT = 0.9  # of each half's updates, in the model


class Half(NamedTuple):
    """One side of a partition."""

    updates: int  # that were made there while it lasted
    kept: int  # of these, are in the model after all has settled

    @property
    def share(self) -> float:
        """1 where nothing was made."""
        return self.kept / self.updates if self.updates else 1.0


@dataclass(frozen=True)
class Verdict:
    """One round's."""

    seed: int
    algorithm: str
    walks_wanted: int  # R; 0 for gossip
    blows: tuple[str, ...] = ()  # in words, as they happened
    gone: tuple[int, ...] = ()  # nodes that were killed or left for good, and for whom nobody came
    aggregators_killed: int = 0
    stuck: tuple[str, ...] = ()  # nodes that had to be ended by force, or ended with an error when asked to leave
    idle: tuple[int, ...] = ()  # nodes that are left and did nothing in the end
    silent: tuple[str, ...] = ()  # nodes that are left and did not answer in the end
    aggregating: tuple[str, ...] = ()  # nodes that said in the end that they aggregate
    refused: tuple[str, ...] = ()  # joins and leaves that did not succeed, in words
    unsound: tuple[str, ...] = ()  # nodes with a model that is not finite
    iterations: int = 0
    mixings: int = 0
    counted: float = 0.0  # the largest weight of an update in an aggregate, or its part of a reign's visits
    twice: int = 0  # halves of exchanges that were applied twice
    halves: tuple[Half, ...] = ()  # of partitions, two each
    walks: int = 0  # that are there in the end
    copies: int = 0  # beyond one of each
    loss: Comparison = field(default_factory=Comparison)
    detection: tuple[float, ...] = ()  # from the kill of an aggregator to the first suspicion, in heartbeats
    recovery: tuple[float, ...] = ()  # from the kill of an aggregator to the next one's first mixing, in heartbeats
    replacement: tuple[float, ...] = ()  # from a lost walk's last sign to its restart, in mean return times
    seconds: float = 0.0
    broke: str = ""  # why there is no verdict

    def failures(self) -> list[str]:
        """What did not hold, in words; empty where everything did."""
        if self.broke:
            return [f"broke off: {self.broke}"]
        failed = list(self.refused)
        if self.stuck:
            failed.append(f"did not leave: {' '.join(self.stuck)}")
        if self.idle:
            failed.append(f"did nothing in the end: {' '.join(map(str, self.idle))}")
        if self.silent:
            failed.append(f"did not answer: {' '.join(self.silent)}")
        if self.walks_wanted and len(self.aggregating) != 1:
            failed.append(f"aggregate: {' '.join(self.aggregating) or 'nobody'}")
        if self.unsound:
            failed.append(f"not finite: {' '.join(self.unsound)}")
        if self.counted > 1.001 or self.twice:
            failed.append(f"counted twice: {self.counted:.2f} of an update, {self.twice} exchanges")
        failed += [f"{h.kept} of {h.updates} updates of a half are in the model" for h in self.halves if h.share < KEPT]
        if self.walks != self.walks_wanted or self.copies:
            failed.append(f"{self.walks} walks and {self.copies} copies, not {self.walks_wanted}")
        if not self.loss.ratio <= TOLERANCE:
            failed.append(f"the loss is {self.loss.ratio:.2f} times that of an undisturbed run")
        return failed

    @property
    def passed(self) -> bool:
        """Whether everything held."""
        return not self.failures()


def verdict_of(facts: Mapping[str, Any]) -> Verdict:
    """Back from what `dataclasses.asdict` made of one, through JSON."""
    said = {name: facts[name] for name in Verdict.__dataclass_fields__ if name in facts}
    said = {name: tuple(value) if isinstance(value, list) else value for name, value in said.items()}
    said["halves"] = tuple(Half(*half) for half in said.get("halves", ()))
    said["loss"] = Comparison(**said["loss"])
    return Verdict(**said)
