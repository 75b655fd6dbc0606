"""The `optimizer` section: any element-wise optimizer of torch.optim, by its name in small letters."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

import torch
from pydantic import ConfigDict, model_validator

from walktalk import learning
from walktalk.errors import ModelError, suggestion
from walktalk.settings import misfit
from walktalk.studies.spec.fields import Section, key

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
    """All names, as the trainer itself lists them."""
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
