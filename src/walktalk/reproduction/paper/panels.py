"""What a figure of the paper and its panels are, and what a person may change in their studies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from walktalk.core.errors import SpecError

Scale: TypeAlias = Literal["smoke", "paper"]
SCALES: tuple[Scale, ...] = ("smoke", "paper")
Tuning: TypeAlias = Literal["lr", "best"]
TUNED: dict[Tuning, str] = {"lr": "tuned", "best": "best"}  # what folders and drawings have behind their names

CYCLE = {"topology": "cycle", "nodes": 20, "sites": "us-five-sites"}
COMPLETE = {"topology": "complete", "nodes": 20, "sites": "us-five-sites"}
ERDOS_RENYI = {"topology": "erdos_renyi", "nodes": 20, "p": 0.3, "sites": "us-five-sites"}
ALPHAS = (10.0, 1.0, 0.1)
FAMILY = "family"  # no figure of the paper's, but run in the same way


@dataclass(frozen=True)
class Panel:
    """One study of a figure: what it changes in the figure's settings."""

    name: str  # of its folder
    title: str
    network: Mapping[str, Any] = field(default_factory=lambda: ERDOS_RENYI)
    alpha: float | None = None
    longer: float = 1.0  # how many times as many iterations
    algorithms: tuple[Mapping[str, Any], ...] = ()  # in place of the figure's


Content = dict[str, Any]
Change = Callable[[Content, Panel, Scale], None]  # of a study's settings, in place


@dataclass(frozen=True)
class Figure:
    """One figure or table of the paper."""

    name: str
    title: str
    base: str  # the settings: image, language; empty where nothing is trained
    runs: str  # the folder of its runs; figures with the same one share them
    panels: tuple[Panel, ...]
    needs: str = ""  # what the paper's scale needs that does not come with the package
    tuned: bool = False  # whether every algorithm has its own learning rate, whoever asks
    variant: str = ""  # under other settings: see `variants`
    kept: tuple[int, ...] | None = None  # which of the figure's own panels those are; None: all
    part: str = ""  # the names of the panels, where a person has chosen some
    changed_by: tuple[Change, ...] = ()  # what the variant does to the settings of a study


# Keys that a person changes: which ones may be, and to which panels each belongs.

OWN = "`walktalk run` takes a study of your own (`walktalk presets quickstart` prints one to start from)"
WITHOUT_TRAINING = ("seed", "task", "network.nodes")  # what a split of data depends on


def refuse_what_is_varied(one: Figure, changes: Mapping[str, Any]) -> None:
    """A panel's title and folder say its topology, and its α where panels differ in it: neither may become untrue."""
    alphas = list(dict.fromkeys(f"{panel.alpha:g}" for panel in one.panels if panel.alpha is not None))
    for key in keys_of(changes):
        if key == "network.topology":
            raise SpecError(f"{key}: the panels of {one.name} are named after their topologies; {OWN}")
        if key == "task.alpha" and len(alphas) > 1:
            other = f"`walktalk paper run fig4 --set {key}=…` has one for all, and {OWN}"
            raise SpecError(f"{key}: is what the panels of {one.name} differ in ({', '.join(alphas)}); {other}")


def without_meaning(one: Figure, changes: Mapping[str, Any]) -> list[str]:
    """The changed keys that a figure without training does not depend on."""
    if one.runs:
        return []
    means = WITHOUT_TRAINING if one.panels else ()
    return [key for key in keys_of(changes) if not any(f"{key}.".startswith(f"{known}.") for known in means)]


def fitting(one: Figure, panel: Panel, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The changes for a panel: a parameter of another panel's topology, such as network.p, is meant for that one."""
    network = changes.get("network")
    if not isinstance(network, Mapping):
        return dict(changes)
    others = {name for other in one.panels for name in _takes(other)} - set(_takes(panel))
    return {**changes, "network": {name: value for name, value in network.items() if name not in others}}


def _takes(panel: Panel) -> tuple[str, ...]:
    from walktalk.graphs import topology_settings  # imports networkx

    return tuple(topology_settings(str(panel.network["topology"])))


def merged(content: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with those changes, in sections and their sections."""
    whole = dict(content)
    for name, value in changes.items():
        old = whole.get(name)
        whole[name] = merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return whole


def keys_of(changes: Mapping[str, Any], within: str = "") -> Iterator[str]:
    """The keys that are changed, with their sections: task.alpha."""
    for name, value in changes.items():
        if isinstance(value, Mapping):
            yield from keys_of(value, f"{within}{name}.")
        else:
            yield f"{within}{name}"
