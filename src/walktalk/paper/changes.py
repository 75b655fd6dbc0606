"""Keys that a person changes in a figure's studies: which ones may be, and to which panels each belongs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from walktalk.errors import SpecError

if TYPE_CHECKING:
    from walktalk.paper.figures import Figure, Panel

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
