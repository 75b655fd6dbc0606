"""The sections `network`, `task`, `optimizer` and `faults`, and what all sections share.

Types are strict, unknown keys refused, and what is allowed is said in words. Each key is made by
`key(default, allowed, meaning)`: the words in `allowed` are what an error says, and both together make the reference in
the documentation.
"""

from __future__ import annotations

import inspect
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_serializer, model_validator

from walktalk import learning
from walktalk.core.errors import ModelError, SettingError, SpecError, suggestion
from walktalk.core.lazy import later
from walktalk.core.settings import complete, misfit, shown
from walktalk.graphs import SITE_PRESETS, TOPOLOGIES, default_nodes, known_as, topology_settings
from walktalk.learning import tasks
from walktalk.runtimes.simulator import Fault

if TYPE_CHECKING:
    import torch
else:
    torch = later("torch")


class Section(BaseModel):
    """A part of a specification: immutable, no unknown keys, no "5" for 5, no infinities."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def key(default: Any, allowed: str, meaning: str, **constraints: Any) -> Any:
    """A key: its default, what is allowed in words, what it means, and pydantic's constraints."""
    more: dict[str, Any] = {"description": meaning, "json_schema_extra": {"allowed": allowed}, **constraints}
    if isinstance(default, (list, dict)):
        return Field(default_factory=default.copy, **more)
    return Field(default, **more)


def allowed_text(section: type[BaseModel], name: str) -> str:
    """What is allowed for a key, in words; "" for a key that is not there."""
    field = section.model_fields.get(name)
    extra = field.json_schema_extra if field else None
    return str(extra.get("allowed", "")) if isinstance(extra, dict) else ""


def _whole(value: object) -> object:
    """1e5 is a float in YAML, but people write it for a whole number; 1e30 stays what it is, to be refused as such."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**63 else value


Whole = Annotated[int, BeforeValidator(_whole)]


# From pydantic's report to one line that names the key, the value and what is allowed.


def _by_name(value: object) -> object:
    """Numbers of nodes are names, too; YAML reads them as numbers."""
    return {str(name): one for name, one in value.items()} if isinstance(value, dict) else value


Counts = Annotated[Whole | list[Whole] | dict[str, Whole], BeforeValidator(_by_name)]
"""A whole number for all nodes, a list with one for each, or numbers by the nodes' names."""

Numbers = Annotated[float | list[float] | dict[str, float], BeforeValidator(_by_name)]
"""A number for all nodes, a list with one for each, or numbers by the nodes' names."""

ALSO_CALLED = {  # keys by the names that other tools have for them
    "clients": "network.nodes",
    "epochs": "stop.iterations",
    "graph": "network.topology",
    "learning_rate": "optimizer.lr",
    "nodes": "network.nodes",
    "peers": "network.nodes",
    "rounds": "stop.iterations",
    "steps": "training.local_steps",
    "workers": "network.nodes",
}


def spec_error(error: ValidationError, root: type[BaseModel], places: list[int]) -> SpecError:
    """The first mistake in words; `places` leads from expanded algorithms back to what the person wrote."""
    first = error.errors(include_url=False)[0]
    loc = _up_to_a_value([str(part) for part in first["loc"]], root, first["type"] == "extra_forbidden")
    message = " ".join(
        _message(first, loc, _section(root, loc[:-1]), root).split()
    )  # one line, whatever a key is called
    key, _, rest = message.partition(": ")
    return SpecError(f"{_as_written(key, places)}: {rest}")


def _up_to_a_value(loc: list[str], root: type[BaseModel], is_unknown: bool) -> list[str]:
    """A place without what pydantic says of types that a value could be of, such as `float` behind its key.

    `is_unknown`: it ends with a key that nobody knows, which is no such type.
    """
    for depth, part in enumerate(loc):
        section = _section(root, loc[:depth])
        field = section.model_fields.get(part) if section else None
        if field is None:
            continue
        inner = [name for model in _models(field.annotation) for name in model.model_fields]
        further = loc[depth + 1 :]
        if is_unknown and len(further) == 1:
            return loc
        if further and not further[0].isdecimal() and further[0] not in inner:
            return [*loc[: depth + 1], *(more for more in further if more.isdecimal())]
    return loc


def _message(first: Any, loc: list[str], section: type[BaseModel] | None, root: type[BaseModel]) -> str:
    kind, value, key = first["type"], first["input"], ".".join(loc)
    if kind == "value_error":  # ours: the message begins with the key within its section
        inner = str(first["ctx"]["error"])
        name, _, rest = inner.partition(": ")
        if rest.startswith("is an unknown key") and "did you mean" not in rest:
            inner += belongs_to(name, root)
        return f"{key}.{inner}" if key else inner
    if kind == "extra_forbidden":
        known = list(section.model_fields) if section else []
        near = belongs_to(loc[-1], root) or suggestion(loc[-1], known)
        return f"{key}: is an unknown key; allowed: {', '.join(known)}{near}"
    if kind in ("model_type", "dict_type"):
        return f"{key}: {shown(value)} is not a section; allowed: key: value pairs"
    allowed = allowed_text(section, loc[-1]) if section else ""
    if not allowed and loc[-1].isdecimal():  # an item of a list: the list's own words
        return _message(first, loc[:-1], section, root)
    near = suggestion(value, allowed.split(", ")) if kind == "literal_error" else ""
    return str(misfit(key, value, f"{allowed or first['msg']}{near}"))


def belongs_to(name: str, root: type[BaseModel]) -> str:
    """Where a key is at home that stands elsewhere; nothing where nobody has it, or more than one section."""
    homes = [
        f"{section}.{name}"
        for section, field in root.model_fields.items()
        for model in _models(field.annotation)
        if name in model.model_fields and section not in ("algorithms", "faults")
    ]
    home = homes[0] if len(homes) == 1 else ALSO_CALLED.get(name)
    return f"; did you mean '{home}'?" if home else ""


def _section(root: type[BaseModel], loc: list[str]) -> type[BaseModel] | None:
    """The class of the section at this place."""
    here: type[BaseModel] | None = root
    for part in loc:
        if part.isdecimal() or here is None:
            continue
        field = here.model_fields.get(part)
        inner = _models(field.annotation) if field else []
        here = inner[0] if inner else here
    return here


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models(part)]


def _as_written(key: str, places: list[int]) -> str:
    parts = key.split(".")
    if len(parts) > 1 and parts[0] == "algorithms" and parts[1].isdecimal() and int(parts[1]) < len(places):
        parts[1] = str(places[int(parts[1])])
    return ".".join(parts)


# -- The sections -----------------------------------------------------------------------------------------------------


class NetworkSpec(Section):
    """Who may talk to whom. Beside the keys below it takes the settings of its topology."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, allow_inf_nan=False)

    topology: str = key("erdos_renyi", "a topology (see below) or module:object", "the family of graphs")
    nodes: Whole | None = key(
        None,
        "a whole number from 1 to 16,777,216",
        "how many nodes, V; 20 unless the topology or its settings say",
        ge=1,
        le=2**24,
    )
    sites: str | None = key(
        None, ", ".join(sorted(SITE_PRESETS)), "where the nodes stand: sets latency and bandwidth of `network` timing"
    )

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, given: Any) -> Any:
        """The topology's settings, given or default, each of the right type."""
        if not isinstance(given, dict) or not isinstance(given.get("topology", ""), str):
            return given
        topology = known_as(given.get("topology", "erdos_renyi"))
        takes = topology_settings(topology)
        for name in set(given) - set(takes) - set(cls.model_fields):
            if any(name in topology_settings(other) for other in TOPOLOGIES):
                words = ", ".join(("nodes", "sites", *takes))
                value = f"{given[name]!r} has no meaning for topology {topology}, which takes {words}"
                raise SettingError(f"{name}: {value}")
        settings = complete(given, takes, tuple(cls.model_fields))
        return {"nodes": default_nodes(topology, given), **given, **settings, "topology": topology}

    @model_validator(mode="after")
    def _fits(self) -> NetworkSpec:
        if self.sites is not None and self.sites.replace("_", "-") not in SITE_PRESETS:
            raise misfit("sites", self.sites, ", ".join(sorted(SITE_PRESETS)))
        return self

    @property
    def parameters(self) -> dict[str, Any]:
        """What the topology takes beyond the number of nodes."""
        return {name: value for name, value in (self.model_extra or {}).items() if value is not None}

    @property
    def title(self) -> str:
        """What people call the topology: its name without the module, or, handed over in Python, the graph's own."""
        called = self.parameters.get("called") if self.topology in ("edges", "given") else None
        return str(called) if called is not None else self.topology.rpartition(":")[2]

    @model_serializer
    def _written(self) -> dict[str, Any]:
        """Where the nodes stand comes last, as people write it."""
        written = {"topology": self.topology, "nodes": self.nodes, **self.parameters, "sites": self.sites}
        return {name: value for name, value in written.items() if value is not None}


# The `task` section: what is learned, and how its data is split over the nodes.


class TaskSpec(Section):
    """What is learned. Beside `name` it takes the task's own settings; how the data is split is among them."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, allow_inf_nan=False)

    name: str = key("digits", "a task (see below) or module:object", "the task")

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, given: Any) -> Any:
        """The task's settings, given or default, each of the right type."""
        if not isinstance(given, dict) or not isinstance(given.get("name", ""), str):
            return given
        name = given.get("name", "digits")
        settings = complete(given, tasks.task_settings(name), ("name",))
        return {"name": name, **{key: value for key, value in settings.items() if value is not None}}

    @property
    def settings(self) -> dict[str, Any]:
        """The task's own settings."""
        return dict(self.model_extra or {})

    @property
    def title(self) -> str:
        """What people call the task: its name without the module, or, handed over in Python, its own."""
        return str(self.settings["called"]) if self.name == "given" else self.name.rpartition(":")[2]


# The `optimizer` section: any element-wise optimizer of torch.optim, by its name in small letters.

OWN_DEFAULTS: dict[str, dict[str, Any]] = {  # where the paper's differ from torch's (Table 5)
    "sgd": {"lr": 0.05, "momentum": 0.9, "nesterov": True}
}
SETTINGS = ("momentum", "nesterov", "betas", "eps")
NOT_OURS = ("params", "foreach", "fused", "capturable", "differentiable")  # how torch does it, not what it does


class OptimizerSpec(Section):
    """The optimizer, the same for every algorithm. Beside these keys it takes what its class of torch.optim does."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, allow_inf_nan=False)

    name: str = key("sgd", "sgd, adam, adamw or another element-wise optimizer of torch.optim", "the optimizer")
    lr: float = key(
        0.05, "a number above 0, at most 1e30", "learning rate; 0.05 for sgd, torch's default for others", gt=0, le=1e30
    )
    weight_decay: float = key(0.0, "a number from 0 to 1e6", "weight decay", ge=0, le=1e6)
    momentum: float | None = key(None, "a number from 0 to below 1", "sgd: 0.9 unless given", ge=0, lt=1)
    nesterov: bool | None = key(None, "true, false", "sgd: true unless momentum is 0")
    betas: list[float] | None = key(
        None,
        "two numbers from 0 to below 1",
        "adam and its kin: torch's default unless given",
        min_length=2,
        max_length=2,
    )
    eps: float | None = key(
        None, "a number above 0, at most 1", "adam and its kin: torch's default unless given", gt=0, le=1
    )

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, given: Any) -> Any:
        if not isinstance(given, dict) or not known(given.get("name", "sgd")):
            return given
        defaults = _defaults(given.get("name", "sgd"))
        if given.get("momentum", defaults.get("momentum")) == 0:
            defaults.pop("nesterov", None)
        return {**defaults, **given}

    @model_validator(mode="after")
    def _fits(self) -> OptimizerSpec:
        if not known(self.name):
            raise misfit("name", self.name, f"{_names()}{suggestion(self.name, _names().split(', '))}")
        takes = _arguments(self.name)
        for name in SETTINGS:
            value = getattr(self, name)
            if value is not None and name not in takes:
                allowed = ", ".join(("lr", "weight_decay", *(s for s in SETTINGS if s in takes)))
                raise ValueError(f"{name}: {value!r} has no meaning for {self.name}, which takes {allowed}")
        self._check_further(takes)
        if self.nesterov and not self.momentum:
            raise ValueError(f"nesterov: true needs momentum above 0, but it is {self.momentum}; set nesterov to false")
        if self.betas is not None and not all(0 <= beta < 1 for beta in self.betas):
            raise misfit("betas", self.betas, "two numbers from 0 to below 1")
        return self

    def _check_further(self, takes: dict[str, Any]) -> None:
        """Arguments of the class itself, such as amsgrad: they have to be there, and plain."""
        own = ("name", "lr", "weight_decay", *(s for s in SETTINGS if s in takes))
        known = (*own, *(k for k in takes if k not in (*own, *NOT_OURS)))
        for name, value in (self.model_extra or {}).items():
            if name not in known:
                allowed = f"{', '.join(known)}{suggestion(name, known)}"
                raise ValueError(f"{name}: is an unknown key; allowed: {allowed}")
            if not isinstance(value, (bool, int, float, str)) and value is not None:
                raise misfit(name, value, "a number, true, false or a text")
        try:
            if self.model_extra:  # else nothing is new to torch, whose first optimizer imports its compiler
                self.build()
        except ModelError as error:
            raise ValueError(f"{self.name}: {str(error).partition(': ')[2]}") from error

    def build(self) -> learning.OptimizerSpec:
        """The optimizer as the trainer takes it."""
        given = {name: getattr(self, name) for name in SETTINGS if getattr(self, name) is not None}
        if self.betas is not None:
            given["betas"] = tuple(self.betas)
        extra = {name: value for name, value in (self.model_extra or {}).items() if value is not None}
        return learning.OptimizerSpec(name=self.name, lr=self.lr, weight_decay=self.weight_decay, extra=extra, **given)


def known(name: object) -> bool:
    """Whether there is an optimizer of that name."""
    return isinstance(name, str) and name in _names().split(", ")


@cache
def _names() -> str:
    """The names of all optimizers, as the trainer lists them."""
    try:
        learning.OptimizerSpec(name="")
    except ModelError as error:
        return str(error).partition("allowed: ")[2]
    return ""


@cache
def _arguments(name: str) -> dict[str, Any]:
    """What the class of torch.optim takes, with its defaults."""
    optimizer = next(thing for known_as, thing in vars(torch.optim).items() if known_as.lower() == name)
    return {key: parameter.default for key, parameter in inspect.signature(optimizer).parameters.items()}


def _defaults(name: str) -> dict[str, Any]:
    takes = _arguments(name)
    rate = takes.get("lr", 1e-3)
    defaults: dict[str, Any] = {"lr": float(rate) if isinstance(rate, (int, float)) else 1e-3}
    if "betas" in takes:
        defaults["betas"] = list(takes["betas"])
    if isinstance(takes.get("eps"), float):
        defaults["eps"] = takes["eps"]
    return {**defaults, **OWN_DEFAULTS.get(name, {})}


# An entry of `faults`: what goes wrong in the simulator, and when.


class FaultSpec(Section):
    """One thing that goes wrong: at a time, or again and again at a rate."""

    kind: Literal[
        "kill", "revive", "pause", "hang", "partition", "slow", "lose", "swallow", "corrupt", "join", "leave"
    ] = key("kill", "kill, revive, pause, hang, partition, slow, lose, swallow, corrupt, join, leave", "what happens")
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
        "kill, revive, pause, hang, slow, swallow, corrupt: whom it hits; leave: who leaves for good; join: who comes",
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
        """The `Fault` that the simulator injects."""
        given: dict[str, Any] = self.model_dump(exclude={"nodes", "link"})
        link = (self.link[0], self.link[1]) if self.link is not None else None
        return Fault(**given, nodes=tuple(self.nodes), link=link)
