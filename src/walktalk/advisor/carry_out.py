"""How an advice is carried out: the command or the Python that does it, and doing it."""

from __future__ import annotations

import dataclasses
import shlex
from math import ceil, isfinite
from typing import TYPE_CHECKING, Any

import yaml

from walktalk.advisor.pilots import stop_at
from walktalk.advisor.situation import InPython
from walktalk.errors import SpecError
from walktalk.protocols import PROTOCOLS, Private, Protocol
from walktalk.runtimes.meaning import Stop
from walktalk.studies import SGD, StudySpec, make_spec, run_study, spec_mapping

if TYPE_CHECKING:
    from walktalk.advisor.advice import Advice

ROOM = 1.5  # times the most that 95 % of runs need: so far a run may go until it gives up
NAMES = {"OptimizerSpec": "Optimizer"}  # classes that have another name at the front door


def stop_of(advice: Advice) -> Stop:
    """When a run ends: at the budget, or at the target, with enough room to get there.

    Where the learning rate follows a schedule, the study's own end stays: the schedule is measured by it.
    """
    ground, found = advice.ground, advice.predictions
    goal, stop = ground.goal, ground.situation.stop
    if goal.budget is not None:
        return stop_at(goal.objective, goal.budget)
    room = {axis: ROOM * found[axis].high for axis in ("iterations", "time", "bits")}
    if not ground.situation.constant_rate or not isfinite(room["iterations"]):
        return dataclasses.replace(stop, target_loss=ground.target)
    iterations = None if stop.iterations is None else max(stop.iterations, ceil(room["iterations"]))
    time, bits = (
        None if limit is None else max(limit, room[axis]) for axis, limit in (("time", stop.time), ("bits", stop.bits))
    )
    return Stop(iterations=iterations, time=time, bits=bits, target_loss=ground.target)


def entry_of(protocol: Protocol, lr: float) -> dict[str, Any]:
    """The entry under `algorithms`: its name, the settings that are not the usual ones, and the learning rate."""
    core = protocol.core
    around = {name: value for name, value in protocol.settings.items() if name not in core.settings}
    if protocol.privacy is not None:
        around["privacy"] = {name: value for name, value in dataclasses.asdict(protocol.privacy).items() if value}
    return {"name": name_in_specifications(core), **unusual(core), **around, "lr": lr}


def name_in_specifications(protocol: Protocol) -> str:
    """The registered name, or where the class is."""
    kind = type(protocol)
    if PROTOCOLS.get(kind.name) is kind:
        return kind.name
    return f"{kind.__module__}:{kind.__qualname__}"


def unusual(thing: Any) -> dict[str, Any]:
    """The fields of a dataclass that differ from their defaults."""
    found = {}
    for one in dataclasses.fields(thing) if dataclasses.is_dataclass(thing) else ():
        default = one.default if one.default_factory is dataclasses.MISSING else one.default_factory()
        value = getattr(thing, one.name)
        if one.init and value != default:
            found[one.name] = value
    return found


def changes(advice: Advice) -> dict[str, Any]:
    """The keys of a study that the advice changes."""
    stop = {name: value for name, value in dataclasses.asdict(stop_of(advice)).items() if value is not None}
    return {"algorithms": [entry_of(advice.best.protocol, advice.best.lr)], "stop": stop}


def command(advice: Advice, study: str, given: list[str]) -> str:
    """The command that runs the study with the advised algorithm alone, in a folder of its own: in the study's, where
    its results may be already, it would be refused as another study.

    Args:
        advice: What `advise_study` gave.
        study: The file or preset, as on the command line.
        given: What was set there with --set.
    """
    own = [f"{key}={flow(value)}" for key, value in changes(advice).items()]
    folder = f"out/{advice.ground.situation.spec.name}-least-{advice.ground.goal.objective}"
    setting = [part for each in (*given, *own) for part in ("--set", each)]
    return shlex.join(["walktalk", "run", study, "--out", folder, *setting])


def flow(value: Any) -> str:
    """YAML on one line."""
    return yaml.safe_dump(value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10**9).strip()


def study_of(advice: Advice) -> StudySpec:
    """The study with the advised algorithm alone, ending at the target or the budget."""
    situation = advice.ground.situation
    if situation.in_python is not None:
        raise SpecError("spec: this advice is for things in Python, not for a study; advice.run() carries it out")
    return make_spec({**spec_mapping(situation.spec), **changes(advice)})


def arguments(advice: Advice, given: InPython) -> dict[str, Any]:
    """The arguments of `train` beside task, protocol and graph."""
    optimizer = dataclasses.replace(advice.ground.situation.optimizer, lr=advice.best.lr)
    return {**given.arguments, "optimizer": optimizer, "stop": stop_of(advice)}


def code(advice: Advice) -> str:
    """Python that carries the advice out; of a study, `advice` itself has the specification."""
    given = advice.ground.situation.in_python
    if given is None:
        return "import walktalk as wt\n\nresult = wt.run_study(advice.spec)"
    protocol = advice.best.protocol
    kind = type(protocol.core if isinstance(protocol, Private) else protocol)
    home = "walktalk.protocols" if kind.__module__.startswith("walktalk.protocols") else kind.__module__
    lines = [f"    {name}={as_python(value)}," for name, value in arguments(advice, given).items()]
    called = made(protocol)
    imports = ["import walktalk as wt", f"from {home} import {kind.__name__}", ""]
    return "\n".join([*imports, "run = wt.train(", "    task,", f"    {called},", "    graph,", *lines, ")"])


def made(protocol: Protocol) -> str:
    """What makes a protocol, its class imported."""
    if isinstance(protocol, Private):
        given = {name: value for name, value in dataclasses.asdict(protocol.spends).items() if value is not None}
        return f"wt.private({made(protocol.inner)}, {_settings(given)})"
    return f"{type(protocol).__name__}({_settings(unusual(protocol))})"


def as_python(value: Any) -> str:
    """What makes a value, with names from walktalk's front door."""
    if value == dataclasses.replace(SGD(), lr=getattr(value, "lr", 0.05)):
        return f"wt.SGD(lr={value.lr!r})"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(as_python, value))}]"
    if dataclasses.is_dataclass(value):
        name = type(value).__name__
        return f"wt.{NAMES.get(name, name)}({_settings(unusual(value))})"
    return repr(value)


def _settings(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in settings.items())


def run(advice: Advice, changed: dict[str, Any]) -> Any:
    """Carry it out: a study's with `run_study`, else with `train`."""
    given = advice.ground.situation.in_python
    if given is None:
        return run_study(study_of(advice), **changed)
    return given.train(given.task, advice.best.protocol, given.graph, **{**arguments(advice, given), **changed})
