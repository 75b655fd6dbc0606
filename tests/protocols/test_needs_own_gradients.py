"""What an algorithm says of the trainings that it asks for is what it asks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.mechanisms import ours
from walktalk.protocols import PROTOCOLS, Protocol
from walktalk.runtimes.semantics import Stop
from walktalk.testing.conformance import graph_for
from walktalk.testing.engines import simulated

USUAL = [pytest.param(one, id=one.label) for name in ours() for one in PROTOCOLS.find(name).usual()[:1]]


@pytest.mark.parametrize("protocol", USUAL)
def test_what_no_plain_loop_gives_is_said(protocol: Protocol, tmp_path: Path) -> None:
    if "sim" not in protocol.runtimes or protocol.pools_data:
        pytest.skip("trains elsewhere")
    trace = simulated(protocol, graph_for(protocol), Stop(iterations=40), tmp_path).trace
    asked = [row for row in trace if row.event in ("train", "differentiate")]
    assert asked
    more = any(row.event == "differentiate" or {"correction", "anchor"} & set(row.detail or ()) for row in asked)
    assert more == bool(protocol.needs_own_gradients)
