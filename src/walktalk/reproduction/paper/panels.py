"""What a figure of the paper and its panels are, under which other settings they can run, and what may be changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from walktalk.core.errors import SpecError, suggestion

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


# -- Figures under other settings: each variant settles a question that the figure's own runs leave open --------------
#
# A variant changes what a study of the figure is made of; what a person sets besides comes after it. Several may be
# given at once, and are made in the order in which they stand here.

IMAGES = ("fig4", "fig5", "fig6", "fig7")
WALKS_BETWEEN = (4, 6, 8, 10, 12, 15)
FIGURE_2 = {"topology": "us_five_sites", "nodes": 20}
GBITS = (25, 40, 100)  # beside Figure 8's own 10


@dataclass(frozen=True)
class Variant:
    """One other way to run some figures."""

    name: str
    question: str  # what it settles
    figures: tuple[str, ...]
    change: Change
    in_small: bool = True  # whether it means something at the scale smoke
    panels: Callable[[Panel], Panel | None] | None = None  # a panel as it is run then, None where it is left out


def section(content: Content, name: str, **keys: Any) -> None:
    content[name] = {**content.get(name, {}), **keys}


def settings_of(name: str, **keys: Any) -> Change:
    """A change of some keys of one section."""
    return lambda content, panel, scale: section(content, name, **keys)


def equal_time(content: Content, panel: Panel, scale: Scale) -> None:
    """The paper's protocol: 15 minutes for everybody, 30 at α = 0.1, of which the first 2 warm up (Table 5)."""
    minutes = 15.0 if scale == "paper" else 0.5
    content["stop"] = {"time": 60 * minutes * panel.longer}
    section(content, "schedule", warmup=round(2 / 15 / panel.longer, 4))
    section(content, "timing", compute=0.25)
    samples = {name: value for name, value in content.get("evaluate", {}).items() if name == "samples"}
    content["evaluate"] = {"seconds": 2 * minutes * panel.longer, **samples}


def walks_between(content: Content, panel: Panel, scale: Scale) -> None:
    others = [entry for entry in content["algorithms"] if entry["name"] != "multi_walk"]
    content["algorithms"] = [{"name": "multi_walk", "walks": list(WALKS_BETWEEN)}, *others]


def faster_links(times: float) -> Change:
    def change(content: Content, panel: Panel, scale: Scale) -> None:
        timing = content["timing"]
        section(content, "timing", **{name: times * float(timing[name]) for name in ("bandwidth", "node_bandwidth")})

    return change


def adapters_alone(content: Content, panel: Panel, scale: Scale) -> None:
    """Low-rank adapters of attention's queries and values; they take ten times the rate of whole models."""
    section(content, "task", adapter={"kind": "lora", "rank": 16, "targets": ["q_proj", "v_proj"]})
    section(content, "optimizer", lr=10 * float(content["optimizer"]["lr"]))


def four_times_as_long(content: Content, panel: Panel, scale: Scale) -> None:
    """Failures at one and at two thirds of the time, as before."""
    content["stop"] = {"time": 4 * content["stop"]["time"]}
    content["faults"] = [{**fault, "at": 4 * fault["at"]} for fault in content["faults"]]
    section(content, "evaluate", seconds=4 * content["evaluate"]["seconds"])


def survivors_data(content: Content, panel: Panel, scale: Scale) -> None:
    """Whoever dies, by number: `figures` has put one in place of the word aggregator."""
    dead = {fault["node"] for fault in content["faults"] if fault.get("kind", "kill") == "kill"}
    section(content, "evaluate", nodes=[v for v in range(content["network"]["nodes"]) if v not in dead])


def no_failures(content: Content, panel: Panel, scale: Scale) -> None:
    content["faults"] = []


def in_figure_2s_order(panel: Panel) -> Panel | None:
    """Cycles alone, with 10 of 20 edges inside of a site where a cycle in the order of the nodes has 15."""
    if panel.network.get("topology") != "cycle":
        return None
    return replace(panel, network=FIGURE_2, title=panel.title.replace("ycle", "ycle of Figure 2"))


def nothing(content: Content, panel: Panel, scale: Scale) -> None: ...


VARIANTS: dict[str, Variant] = {
    one.name: one
    for one in (
        Variant(
            "group-norm",
            "is it the running statistics of batch norm that decide at α = 0.1?",
            IMAGES,
            settings_of("task", norm="group"),
            in_small=False,
        ),
        Variant(
            "batch-statistics",
            "the same, with batch norm by the statistics of the batch at hand",
            IMAGES,
            settings_of("training", buffers="batch"),
            in_small=False,
        ),
        Variant(
            "balanced-split",
            "does it hang on nodes with few samples? The split of published code",
            IMAGES,
            settings_of("task", split="balanced"),
            in_small=False,
        ),
        Variant(
            "equal-time",
            "the paper's protocol: who is ahead after the same 900 s (1,800 at α = 0.1)?",
            IMAGES,
            equal_time,
        ),
        Variant(
            "node-0",
            "what does it look like at node 0, and walk 1, in place of the aggregated model?",
            IMAGES,
            settings_of("evaluate", model="node"),
        ),
        Variant(
            "figure-2-order",
            "a cycle with as few edges inside of a site as the paper's",
            IMAGES,
            nothing,
            panels=in_figure_2s_order,
        ),
        Variant("walks-between", "where between R = 4 and 15 does gossip get ahead?", IMAGES, walks_between),
        Variant(
            "adapters",
            "what is left of congestion where low-rank adapters alone are trained and sent?",
            ("fig8",),
            adapters_alone,
            in_small=False,
        ),
        *(
            Variant(
                f"{gbit}gbit", f"congestion with {gbit / 10:g} times the bandwidth", ("fig8",), faster_links(gbit / 10)
            )
            for gbit in GBITS
        ),
        Variant("to-convergence", "four times as long: where do they all end?", ("fig9",), four_times_as_long),
        Variant("survivors", "the loss on the data of those that live", ("fig9",), survivors_data),
        Variant("no-failures", "the same without failures, to compare with", ("fig9",), no_failures),
    )
}


def varied(one: Figure, names: Sequence[str], scale: Scale) -> Figure:
    """The figure with these variants; its runs and drawings have folders and names of their own."""
    for name in names:
        _refuse(one, name, scale)
    chosen = [variant for variant in VARIANTS.values() if variant.name in names]
    panels, kept = list(one.panels), list(range(len(one.panels)))
    for variant in chosen:
        if variant.panels is not None:
            made = [(k, variant.panels(panel)) for k, panel in zip(kept, panels, strict=True)]
            kept = [k for k, panel in made if panel is not None]
            panels = [panel for _, panel in made if panel is not None]
    if not chosen:
        return one
    label = "-".join(variant.name for variant in chosen)
    changes = tuple(variant.change for variant in chosen)
    return replace(
        one, runs=f"{one.runs}-{label}", panels=tuple(panels), variant=label, kept=tuple(kept), changed_by=changes
    )


def _refuse(one: Figure, name: str, scale: Scale) -> None:
    if name not in VARIANTS:
        raise SpecError(f"--variant {name} is unknown; allowed: {', '.join(VARIANTS)}{suggestion(name, VARIANTS)}")
    variant = VARIANTS[name]
    if one.name not in variant.figures:
        fits = [other.name for other in VARIANTS.values() if one.name in other.figures]
        has = f"{one.name} has {', '.join(fits)}" if fits else f"{one.name} has none"
        raise SpecError(f"--variant {name} is for {', '.join(variant.figures)}; {has}")
    if scale == "smoke" and not variant.in_small:
        quick = "--scale paper --set task.samples=2000 --iterations 10 --repetitions 1 is a quick try"
        raise SpecError(f"--variant {name} is about ResNet-20 on CIFAR-10, which --scale smoke has not; {quick}")
