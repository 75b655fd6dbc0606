"""`walktalk node`: one peer of a real deployment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def node(
    config: Annotated[Path, typer.Option(help="The cluster's YAML file, the same on every machine.")],
    name: Annotated[str, typer.Option(help="Which of its nodes this is.")],
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    fresh: Annotated[bool, typer.Option("--fresh", help="Start anew, even where a checkpoint lies.")] = False,
    collect: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="At the run's end collect everybody's model, history and trace here, as `walktalk collect` does; "
            "with certificates this needs the operator's.",
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="PORT",
            help="Show metrics for Prometheus (/metrics) and how it is (/health) on this port of this machine; "
            "HOST:PORT for elsewhere, 0 for any that is free. In place of `metrics` in the cluster file.",
        ),
    ] = None,
    log_format: Annotated[str, typer.Option(metavar="text|json", help="How the log is written.")] = "text",
) -> None:
    """Train as one node of a cluster; Ctrl-C or SIGTERM hands its walks on first."""
    import logging

    from walktalk.runtimes.peers import load_cluster, write_logs
    from walktalk.studies.peers import NodeJob, run_node

    logging.getLogger("walktalk").setLevel(logging.INFO)  # who comes, goes and aggregates; a fleet's nodes are quieter
    write_logs(log_format, name)
    job = NodeJob(load_cluster(config), name, rejoin=not fresh, device=device, metrics=metrics, deployed=True)
    if collect is None:
        run_node(job)
        return
    from walktalk.cli.collect import print_collected
    from walktalk.report import write_report
    from walktalk.studies.collecting import run_and_collect

    collected = run_and_collect(job, collect)
    if collected is not None:
        print_collected(collected, write_report(collect))
