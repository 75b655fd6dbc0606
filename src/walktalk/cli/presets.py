"""`walktalk presets`: the studies that come with the package."""

from __future__ import annotations

from typing import Annotated

import typer

from walktalk.cli import completion


def presets(
    name: Annotated[
        str | None, typer.Argument(help="A preset, to print it as YAML.", autocompletion=completion.studies)
    ] = None,
) -> None:
    """List the presets, or print one as YAML to start your own from."""
    from walktalk.studies import preset_names, preset_text

    if name is not None:
        typer.echo(preset_text(name), nl=False)
        return
    names = preset_names()
    for each in names:
        typer.echo(f"{each:{max(map(len, names))}}  {_first_sentence(preset_text(each))}")


def _first_sentence(text: str) -> str:
    """The comment at the head of a preset, up to its first full stop."""
    head = " ".join(line.lstrip("# ") for line in text.splitlines() if line.startswith("#"))
    return head.split(". ")[0].rstrip(".")
