"""The graphs of the runs, and what the theory says of them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd

from claims.runs import Setting, facts_of, walks_in
from walktalk import theory
from walktalk.api import forecast
from walktalk.protocols import MultiWalk
from walktalk.reproduction.paper.drawing.who_wins import NETWORKS
from walktalk.reproduction.paper.figures import settings
from walktalk.runtimes.semantics import Stop
from walktalk.studies import StudySpec, build_graph, make_spec
from walktalk.studies.planning import build_timing


def spec_of(setting: Setting, folder: Path) -> StudySpec:
    """As `paper_gpu.py` made it, where graph, seed and timing are concerned."""
    given = facts_of(folder / f"alpha-{setting.alpha:g}").get("spec", {})
    timing = given.get("timing", settings("image", "paper")["timing"])
    return make_spec({"seed": given.get("seed", 0), "network": NETWORKS[setting.topology], "timing": timing})


def network_of(setting: Setting, folder: Path) -> theory.Network | None:
    """p, H² and the messages of an iteration; nothing for a graph that is not the paper's."""
    return theory.network(build_graph(spec_of(setting, folder))) if setting.topology in NETWORKS else None


def model_bits(histories: Iterable[pd.DataFrame]) -> int:
    """The size of a model on the wire: what all the counts of models' bits are multiples of.

    ResNet-20's is a little more than its parameters, because BatchNorm's statistics travel with them.
    """
    counts = [int(bits) for history in histories for bits in history["model_bits"]]
    return math.gcd(*counts) if counts else 0


def is_the_runs_graph(setting: Setting, folder: Path) -> bool | None:
    """Whether the graph's own schedule has the time and the bits of the runs' first repetition; None if there is none.

    When things happen never depends on what is learned, so the forecast is exact, and another graph would show.
    """
    if setting.topology not in NETWORKS or not setting.walks:
        return None
    label, spec = setting.walks[0], spec_of(setting, folder)
    last = setting.runs(label)[0].iloc[-1]
    if last["repetition"] != 0:
        return None
    ahead = forecast(
        MultiWalk(int(walks_in(label))),
        build_graph(spec),
        seed=spec.seed,
        timing=build_timing(spec),
        model_bytes=model_bits([setting.history]) // 8,
        stop=Stop(iterations=int(last["iteration"])),
    )
    return bool(np.isclose(ahead.time, last["time"], rtol=1e-9) and ahead.bits == last["bits"])
