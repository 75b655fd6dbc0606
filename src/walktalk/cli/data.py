"""`walktalk data get NAME`, `walktalk data check NAME`: data sets that are files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from walktalk.errors import DataError

if TYPE_CHECKING:
    from walktalk.learning import data

app = typer.Typer(help="Get data sets and check them.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="Which data set: cifar10, fashion_mnist, mnist.")]


@app.command()
def get(
    name: Name,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="FOLDER", help="Take a folder's files or archive, or an archive; fetch nothing."
        ),
    ] = None,
) -> None:
    """Fetch a data set, check it, and put it where tasks look for it."""
    from walktalk.learning import data  # imports torch, which takes a while

    data.fetch(_known(name), None if source is None else str(source), typer.echo)


@app.command()
def check(
    name: Name, folder: Annotated[Path | None, typer.Option(help="Where it is, if not in the usual place.")] = None
) -> None:
    """Check that every file of a data set is there and is the published one, to the byte."""
    from walktalk.learning import data

    dataset = _known(name)
    here = data.locate(dataset, None if folder is None else str(folder))
    typer.echo(f"{dataset.name} is in {here}, complete and unchanged ({len(dataset.files)} files)")


def _known(name: str) -> data.Dataset:
    from walktalk.learning import data as known

    dataset = known.DATASETS.get(name.replace("-", "_"))
    if dataset is None:
        raise DataError(f"there is no data set {name!r} to fetch; allowed: {', '.join(known.DATASETS)}")
    return dataset
