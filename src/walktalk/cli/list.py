"""`walktalk list`: the studies that lie in a folder."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer


def list(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to look, folders below it too.")] = Path("out"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """List the studies in a folder, the newest first; `walktalk compare` puts several side by side."""
    from walktalk.records import studies_below

    found = studies_below(folder)
    if as_json:
        import json
        from dataclasses import asdict

        for study in found:
            typer.echo(json.dumps({**asdict(study), "folder": str(study.folder), "runs": study.runs}))
        return
    if not found:
        typer.echo(f"no studies in {folder}; `walktalk run quickstart` makes one")
        return
    _print([_row(study) for study in found])


def _row(study: Any) -> dict[str, str]:
    state = "finished" if study.finished else f"{study.done} of {study.runs} runs"
    nodes = "" if study.nodes is None else f" {study.nodes}"
    return {
        "Folder": str(study.folder),
        "Task": study.task,
        "Network": f"{study.topology}{nodes}",
        "Runs": f"{study.algorithms} × {study.repetitions}",
        "State": f"{state}{' on peers' if study.engine == 'peers' else ''}",
        "Changed": datetime.fromtimestamp(study.changed).strftime("%Y-%m-%d %H:%M"),
    }


def _print(rows: Any) -> None:
    """A plain table: each column as wide as its widest cell."""
    widths = {head: max(len(head), *(len(row[head]) for row in rows)) for head in rows[0]}
    for cells in ({head: head for head in rows[0]}, *rows):
        typer.echo("  ".join(f"{cells[head]:{width}}" for head, width in widths.items()).rstrip())
