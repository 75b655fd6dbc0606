"""What a protocol says of itself: to people, to figures, to specifications and to the conformance suite.

A class says it in plain class attributes, or in properties where it depends on the settings. Nobody else has to know a
protocol by its name, and nobody reads anything out of a label.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import sys
import textwrap
from abc import ABC
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, TypeAlias, get_origin

from walktalk.core.errors import SpecError
from walktalk.core.settings import settings_of
from walktalk.graphs import Graph

if TYPE_CHECKING:
    from typing_extensions import Self

Runtime: TypeAlias = Literal["sim", "peers"]
Law: TypeAlias = Literal["sum", "once"]
"""`sum`: mixing never changes the sum of the members' models, once every message has arrived.
`once`: no update is in an aggregate with more than its whole weight."""

RUNTIMES: tuple[Runtime, ...] = ("sim", "peers")


FACTS = {
    "paper": 'paper: ClassVar[str] = "who published it, where and when"',
    "update_rule": "its update rule, indented, in the docstring at the head of its file",
    "keeps": 'keeps: ClassVar[str] = "what is kept where"',
    "sends": 'sends: ClassVar[str] = "what is sent to whom, and when"',
    "guarantees": 'guarantees: ClassVar[str] = "the law that holds, and what it comes to"',
}
"""What everything that is registered has to say of itself, for `walktalk algorithms`; and how that is written."""


class SelfDescribed(ABC):
    """The part of a protocol that says what it is. Everything here has a default, so a plug-in says only what it likes.

    Settings are the fields of a dataclass. One called `resilient` chooses between a plain form (False), one that
    survives failures (True), and whichever the world asks for (None).
    """

    name: ClassVar[str]  # in specifications; the class's own, in small letters, unless given
    also_known_as: ClassVar[tuple[str, ...]] = ()  # names that the field has for exactly this; accepted like the name
    known_forms: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # names of it with certain settings, and those settings
    proved: ClassVar[str] = ""  # what is proved of it that `walktalk theory` knows, in a line
    listed_last: ClassVar[tuple[str, ...]] = ()  # settings that it inherits and that stand behind its own, as in labels
    bound: ClassVar[str] = ""  # the function that computes it: one of `walktalk.theory`, or "module:function"

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if "name" not in vars(cls):
            cls.name = "_".join(_words(cls.__name__))

    # -- to people ----------------------------------------------------------------------------------------------------

    @property
    def title(self) -> str:
        """What people call it, as it stands within a sentence: "4 walks"."""
        return " ".join(_words(type(self).__name__))

    @property
    def description(self) -> str:
        """What it does, in one line for somebody who has never heard of it."""
        return (type(self).__doc__ or "").strip().partition("\n")[0]

    @property
    def family(self) -> str:
        """One word for all that work alike: walks, gossip, server, reference …"""
        return "other"

    @property
    def colour(self) -> str | None:
        """Its own colour in every figure, "#rrggbb"; None: one that is free."""
        return None

    @classmethod
    def usual(cls) -> tuple[Self, ...]:
        """The settings that people compare: whatever has only their label, such as an old table, knows them by it."""
        try:
            return (cls(),)
        except TypeError:  # a setting without a default
            return ()

    # -- to people who choose, in `walktalk algorithms` and on its page ----------------------------------------------

    @property
    def paper(self) -> str:
        """Who published it, where and when, in a line."""
        return ""

    @property
    def update_rule(self) -> str:
        """Its update rule: the indented lines at the head of the file that it is in."""
        head = sys.modules[type(self).__module__].__doc__ or ""
        return textwrap.dedent("\n".join(line for line in head.splitlines() if line.startswith("    ")))

    @property
    def keeps(self) -> str:
        """What is kept where, from one message to the next: models, copies, momenta."""
        return ""

    @property
    def sends(self) -> str:
        """What is sent to whom, and when."""
        return ""

    @property
    def guarantees(self) -> str:
        """The law that holds, and what is known of where it comes to."""
        return ""

    # -- to specifications and tests ----------------------------------------------------------------------------------

    @property
    def runtimes(self) -> tuple[Runtime, ...]:
        """Where it can run; the simulator alone where it needs what no real network has."""
        return RUNTIMES

    @property
    def survives_failures(self) -> bool:
        """Whether it has a form for a world in which nodes and messages are lost."""
        return "resilient" in self.settings and not self.why_failures_end_it

    @property
    def why_failures_end_it(self) -> str:
        """Why it has no such form, as it follows "because "."""
        return ""

    @property
    def instead(self) -> str:
        """What to take where there are failures and it knows none, as it ends "take …"."""
        return "another algorithm"

    @property
    def conserves(self) -> tuple[Law, ...]:
        """The laws that hold while nothing is lost; the conformance suite checks them."""
        return ()

    # -- from its settings --------------------------------------------------------------------------------------------

    @property
    def settings(self) -> dict[str, Any]:
        """Its settings by name."""
        return {one.name: getattr(self, one.name) for one in _fields(self)}

    @property
    def label(self) -> str:
        """Short, for tables, legends and folder names: its name and the settings that are not the usual ones."""
        form = {True: "-resilient", False: "-plain"}.get(self.settings.get("resilient"), "")  # type: ignore[arg-type]
        marks = _marks(type(self))
        told = [one for one in _fields(self) if one.name != "resilient"]
        parts = [_part(one.name, getattr(self, one.name), one.default, marks.get(one.name)) for one in told]
        return f"{self.name}{''.join(parts)}{form}"

    def resilient_form(self) -> Self:
        """Its form for a world in which nodes and messages are lost; itself, where it knows nothing of that.

        The simulator asks for it where a run has faults, real peers always do.
        """
        undecided = "resilient" in self.settings and self.settings["resilient"] is None
        return dataclasses.replace(self, resilient=True) if undecided else self  # type: ignore[type-var]


def missing_facts(protocol: SelfDescribed) -> list[str]:
    """What a protocol does not say of itself yet, each as something to do."""
    name = type(protocol).__name__
    return [f"{name} does not say its {fact}: add {how}" for fact, how in FACTS.items() if not getattr(protocol, fact)]


@dataclasses.dataclass(frozen=True)
class InLabel:
    """How a setting stands in the label, written into its type: `Annotated[int, InLabel("-at{}")]`.

    Args:
        form: what stands for a value, nothing if it is empty; without this mark it is "-name" and the value.
        always: whether the default is said, too.
    """

    form: str
    always: bool = False


def _part(name: str, value: Any, default: Any, mark: InLabel | None) -> str:
    """What the label says of a setting; nothing where it is as usual."""
    if value == default and not (mark is not None and mark.always):
        return ""
    if mark is not None:
        return mark.form.format(value)
    if isinstance(value, bool):
        return f"-{name}" if value else f"-no-{name}"
    return f"-{name}{value:g}" if isinstance(value, (int, float)) else f"-{name}-{value}"


@functools.cache
def _marks(cls: type) -> dict[str, InLabel]:
    """The marks of a class's settings."""
    kinds = {name: setting.kind for name, setting in settings_of(cls).items()}
    marked = {name: kind.__metadata__ for name, kind in kinds.items() if get_origin(kind) is Annotated}
    return {name: mark for name, marks in marked.items() for mark in marks if isinstance(mark, InLabel)}


def _fields(thing: SelfDescribed) -> list[dataclasses.Field[Any]]:
    found = dataclasses.fields(thing) if dataclasses.is_dataclass(thing) else ()
    return sorted(found, key=lambda one: one.name in thing.listed_last)


def _words(name: str) -> list[str]:
    """A class's name as words: PushSum is push sum, SGP is sgp."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)] or [name.lower()]


# -- What a protocol may demand of the graph that it runs on: a list in the protocol, checked before anything runs ----


class Demand(NamedTuple):
    """Something that a protocol needs of a graph, and what is said where it is not so."""

    words: str  # what the graph has to be, as it ends "needs …"
    is_met: Callable[[Graph], bool]  # whether a graph is that
    otherwise: str  # the error where it is not, with {graph} and {label} for the names of the graph and the protocol

    def check(self, graph: Graph, label: str) -> None:
        """Raise `SpecError` where it is not met."""
        if not self.is_met(graph):
            raise SpecError(self.otherwise.format(graph=graph.name, label=label))


TWO_WAY = Demand(
    "links that go both ways",
    lambda graph: not graph.directed,
    "network: {graph} has one-way links, on which {label} cannot run; take an undirected graph, or an algorithm for "
    "directed ones",
)
FIXED = Demand(
    "a graph that does not change by round",
    lambda graph: graph.rounds is None,
    "network: {graph} changes by round, on which {label} cannot run; take a fixed graph",
)
BALANCED = Demand(
    "weights whose rows and columns sum to one: with one-way links, as many in as out, everywhere",
    lambda graph: not graph.directed or len({*graph.degrees.tolist(), *graph.reverse.degrees.tolist()}) <= 1,
    "network: on {graph} nodes hear more or fewer than they send to, and {label} needs as many at all; take sgp, or a "
    "graph such as exponential",
)
COMPLETE = Demand(
    "a link between any two nodes",
    lambda graph: graph.edges == graph.nodes * (graph.nodes - 1) // 2,
    "network: {label} sends to anybody, but {graph} is not complete; take complete",
)


def there_is(node: int) -> Demand:
    """A server's own node."""
    return Demand(
        f"a node {node}",
        lambda graph: node < graph.nodes,
        f"server: there is no node {node} on {{graph}}; nodes are numbered from 0",
    )


def tree_with(node: int) -> tuple[Demand, ...]:
    """A server that is the root of a tree."""
    tree = Demand(
        "a tree",
        lambda graph: graph.rounds is None and graph.edges == graph.nodes - 1,
        "network: {graph} is no tree, along which {label} hands models; take binary_tree, spanning_tree, path or star",
    )
    return there_is(node), tree


def server_at(node: int) -> tuple[Demand, ...]:
    """A server that has a link with everybody."""
    linked = Demand(
        f"links of node {node}, the server, with all others",
        lambda graph: graph.rounds is None and len(graph.neighbours(node)) >= graph.nodes - 1,
        f"network: {{label}} has node {node} as its server, which has no link with all others on {{graph}}; take star",
    )
    return there_is(node), linked
