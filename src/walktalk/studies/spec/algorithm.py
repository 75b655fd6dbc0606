"""An entry of `algorithms`: a protocol by name, with its settings, and a list wherever one algorithm each is meant."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from pydantic import ConfigDict, PrivateAttr, model_validator

from walktalk.core.errors import SpecError, UserError
from walktalk.core.settings import complete, settings_of
from walktalk.protocols import PROTOCOLS, Described, Protocol, compressed, described, private, screened
from walktalk.runtimes.semantics import OptimizerState
from walktalk.studies.spec.sections import Section, key

MEMORY: dict[OptimizerState, str] = {  # in titles
    "visit": "optimizer fresh at each visit",
    "walk": "optimizer's state with the walk",
    "node": "optimizer's state at the nodes",
}


class PrivacySpec(Section):
    """What protects the data of an algorithm's nodes: every update is cut and gets noise before anything is done."""

    clip: float = key(1.0, "a number from 1e-9 to 1e9", "the longest update; a longer one is cut", ge=1e-9, le=1e9)
    noise: float = key(
        1.0,
        "a number from 0.01 to 1e6: with none, ε would be infinite",
        "standard deviation of the noise on every number, as a multiple of clip",
        ge=0.01,
        le=1e6,
    )
    delta: float = key(1e-5, "a number above 0, below 1", "the chance with which ε may not hold", gt=0, lt=1)
    budget: float | None = key(
        None,
        "a number from 1e-3 to 1e6",
        "the largest ε that a node may spend; when all have, the run ends; no limit if left out",
        ge=1e-3,
        le=1e6,
    )


class AlgorithmSpec(Section):
    """One algorithm of a study. Beside the keys below it takes the settings of its protocol."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, allow_inf_nan=False)

    name: str = key("multi_walk", "an algorithm (see below) or module:object", "the protocol")
    lr: float | None = key(
        None, "a number above 0, at most 1e30", "its own learning rate, in place of optimizer.lr", gt=0, le=1e30
    )
    optimizer_state: OptimizerState | None = key(
        None, "visit, walk, node", "where its optimizer's memory lives, in place of training.optimizer_state"
    )
    compression: str | None = key(
        None,
        "none, bf16, int8, int4, top_k(0.01), or another codec",
        "what every model that it sends is encoded by; as it is if left out",
    )
    error_feedback: bool | None = key(
        None,
        "true or false",
        "with compression: only differences to what was sent before are encoded; as the codec needs if left out",
    )
    label: str | None = key(
        None, "a short text on one line", "its name in tables, legends and folders", pattern=r"^\S([^\n\r]{0,58}\S)?$"
    )

    screen: str | None = key(
        None,
        "refuse(R), clip(R), facing(C), median, trim(B) or module:object(S)",
        "what protects from bad nodes: a rule for what comes from others; none if left out",
    )

    privacy: PrivacySpec | None = key(
        None,
        "clip, noise, delta and budget",
        "what protects the nodes' data (needs the extra privacy): noise on every update; nothing if left out",
    )

    _given: Protocol | None = PrivateAttr(None)  # the protocol itself, where it was handed over in Python

    @classmethod
    def of(cls, protocol: Protocol) -> AlgorithmSpec:
        """The entry of a protocol that is handed over; its class may be one that nobody else can find."""
        own = type(protocol.core)
        known = own.name in PROTOCOLS and PROTOCOLS[own.name] is own
        name = own.name if known else f"{own.__module__}:{own.__qualname__}"
        settings = {key: _plain(value) for key, value in protocol.settings.items() if key != "privacy"}
        if protocol.privacy is not None:
            settings["privacy"] = PrivacySpec(**asdict(protocol.privacy))
        entry = cls.model_construct(name=name, **settings)
        entry._given = protocol
        return entry

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, given: Any) -> Any:
        """The protocol's settings, given or default, each of the right type."""
        if not isinstance(given, dict) or not isinstance(given.get("name", ""), str):
            return given
        name, means = PROTOCOLS.known_as(given.get("name", "multi_walk"))
        for setting, value in means.items():
            if given.get(setting, value) != value:
                raise SpecError(
                    f"{setting}: {given['name']} is {name} with {setting}: {value} (you gave {given[setting]}); "
                    f"leave {setting} out, or say name: {name}"
                )
        meant = {**given, "name": name, **means}
        return {**meant, **complete(meant, settings_of(PROTOCOLS.find(name)), tuple(cls.model_fields))}

    @model_validator(mode="after")
    def _fits(self) -> AlgorithmSpec:
        if self.compression is None and self.error_feedback is not None:
            raise ValueError(f"error_feedback: {self.error_feedback} has no meaning without compression")
        try:
            self.protocol()
        except SpecError as error:
            raise ValueError(str(error)) from error
        return self

    def protocol(self) -> Protocol:
        """The protocol with its settings."""
        if self._given is not None:
            return self._given
        plain = PROTOCOLS.find(self.name)(**(self.model_extra or {}))
        if self.privacy is not None:
            plain = private(plain, **self.privacy.model_dump())
        safe = plain if self.screen is None else screened(plain, self.screen)
        return safe if self.compression is None else compressed(safe, self.compression, self.error_feedback)

    def described(self) -> Described:
        """What it says of itself, under the label that it has in the study."""
        protocol = self.protocol()
        rate = f", learning rate {self.lr:g}" if self.lr is not None else ""
        memory = f", {MEMORY[self.optimizer_state]}" if self.optimizer_state is not None else ""
        title = self.label or f"{protocol.title}{rate}{memory}"
        # Who is called as the protocol calls itself, whatever the rate, has its name for people, too.
        found = described(self.title, protocol, protocol.title if self.label == protocol.label else title)
        plain = self.model_dump(mode="json", exclude=set(type(self).model_fields))
        return replace(found, settings=plain)

    @property
    def title(self) -> str:
        """The label: the one given, or one that tells all settings apart."""
        if self.label is not None:
            return self.label
        rate = f"-lr{self.lr:g}" if self.lr is not None else ""
        memory = f"-state-{self.optimizer_state}" if self.optimizer_state is not None else ""
        return f"{self.protocol().label}{rate}{memory}"


def _plain(value: Any) -> Any:
    """A setting as YAML holds it; what it cannot hold, as people read it."""
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(one) for one in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def expand(entries: list[Any]) -> list[tuple[int, Any]]:
    """One entry per combination of the values in lists, each with the place in the original list it came from.

    A setting that is a list itself, or a list of lists, stays one; a list of such lists is several.
    """
    return [(place, single) for place, entry in enumerate(entries) for single in _singles(entry)]


def _singles(entry: Any) -> list[Any]:
    if not isinstance(entry, Mapping):
        return [entry]
    depths = _depths(entry.get("name", "multi_walk"))
    choices = [value if value and _depth(value) > depths.get(key, 0) else [value] for key, value in entry.items()]
    return [dict(zip(entry, values, strict=True)) for values in itertools.product(*choices)]


def _depth(value: Any) -> int:
    """How many lists stand in each other, as their first values."""
    return 1 + (_depth(value[0]) if value else 0) if isinstance(value, list) else 0


def _depths(name: Any) -> dict[str, int]:
    """How deep lists stand in each other in the settings of an algorithm; empty, where nobody knows: told later."""
    try:
        known = settings_of(PROTOCOLS.find(PROTOCOLS.known_as(name)[0])) if isinstance(name, str) else {}
    except UserError:
        return {}
    return {key: setting.depth for key, setting in known.items()}
