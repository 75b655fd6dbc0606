"""The `task` section: what is learned, and how its data is split over the nodes."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, model_validator

from walktalk.learning import tasks
from walktalk.settings import complete
from walktalk.studies.spec.fields import Section, key


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
