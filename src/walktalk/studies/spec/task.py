"""The `task` section: what is learned, and how its data is split over the nodes."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, model_validator

from walktalk.errors import suggestion
from walktalk.learning import tasks
from walktalk.studies.spec.fields import Section, key, misfit
from walktalk.studies.spec.settings import Setting, complete, of_function


class TaskSpec(Section):
    """What is learned. Beside `name` it takes the task's own settings; how the data is split is among them."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, allow_inf_nan=False)

    name: str = key("digits", ", ".join(tasks.TASKS), "the task")

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, given: Any) -> Any:
        """The task's settings, given or default, each of the right type."""
        if not isinstance(given, dict) or given.get("name", "digits") not in tasks.TASKS:
            return given
        settings = complete(given, task_settings(given.get("name", "digits")), ("name",))
        chosen = {name: value for name, value in settings.items() if value is not None}
        return {"name": given.get("name", "digits"), **chosen}

    @model_validator(mode="after")
    def _fits(self) -> TaskSpec:
        if self.name not in tasks.TASKS:
            raise misfit("name", self.name, f"{', '.join(tasks.TASKS)}{suggestion(self.name, tasks.TASKS)}")
        alpha = self.settings.get("alpha")
        if alpha is not None and alpha <= 0:  # seen here already, before any data is read
            raise misfit("alpha", alpha, "a number above 0 (large: all nodes alike, small: very different)")
        return self

    @property
    def settings(self) -> dict[str, Any]:
        """The task's own settings."""
        return dict(self.model_extra or {})


def task_settings(name: str) -> dict[str, Setting]:
    """What a task takes, beside the nodes and the seed that the study gives it."""
    return of_function(tasks.TASKS[name], without=("nodes", "seed"))
