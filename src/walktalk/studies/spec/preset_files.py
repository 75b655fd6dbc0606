"""What is written where a study is named: a YAML file, or one that comes with the package.

Nothing heavy is imported here, so that `walktalk presets` and a mistyped name are answered at once.
"""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path
from typing import Any

from walktalk.errors import SpecError
from walktalk.records import yaml_text
from walktalk.studies.spec.suggest import suggestion


def preset_names() -> list[str]:
    """The studies that come with the package."""
    return sorted(p.name.removesuffix(".yaml") for p in _presets().iterdir() if p.name.endswith(".yaml"))


def preset_text(name: str) -> str:
    """A preset's YAML, comments and all."""
    known = preset_names()
    if name not in known:
        raise SpecError(f"{name}: is neither a file nor a preset; presets: {', '.join(known)}{suggestion(name, known)}")
    return str((_presets() / f"{name}.yaml").read_text(encoding="utf-8"))


def read_study(source: str | os.PathLike[str]) -> dict[str, Any]:
    """What a YAML file or a preset says, unchecked; a `SpecError` where it is neither, or no YAML."""
    text = os.fspath(source)
    path = Path(text)
    if path.is_dir() and text not in preset_names():
        raise SpecError(f"{text}: is a folder; name a YAML file, such as {path / 'spec.yaml'}")
    if path.is_file() or path.suffix in (".yaml", ".yml") or os.sep in text:
        return yaml_text.read(path)
    return yaml_text.as_mapping(yaml_text.parse(preset_text(text), f"preset {text}"), f"preset {text}")


def _presets() -> Any:
    return files("walktalk.studies") / "presets"
