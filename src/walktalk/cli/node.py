"""`walktalk node`: one peer of a real deployment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def node(
    config: Annotated[Path, typer.Option(help="The cluster's YAML file, the same on every machine.")],
    name: Annotated[str, typer.Option(help="Which of its nodes this is.")],
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    fresh: Annotated[bool, typer.Option("--fresh", help="Start anew, even if there is a checkpoint.")] = False,
    join: Annotated[
        str | None,
        typer.Option(
            metavar="NODE",
            help="Join a cluster that runs, of whose file this node is no part: knock at that node of it, or at "
            "HOST:PORT; `relay` where it can only dial out. With certificates one of the cluster's authority for "
            "--name is needed.",
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST[:PORT]",
            help="With --join: where others reach it. If left out: at the relay, where the cluster has one, else at "
            "127.0.0.1 and a free port.",
        ),
    ] = None,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="With --join: where it listens, if not at --address.")
    ] = None,
    site: Annotated[str, typer.Option(help="With --join: the site's name, for `walktalk status`.")] = "",
    part: Annotated[
        str | None,
        typer.Option(help="With --join: whose data it has; a number where the task splits its data by number."),
    ] = None,
    neighbours: Annotated[
        str | None,
        typer.Option(metavar="A,B,…", help="With --join: its neighbours; if left out, those that suit the graph."),
    ] = None,
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
    keep_traces: Annotated[
        float | None,
        typer.Option(
            metavar="MB",
            min=0,
            help="Keep so many megabytes of old parts of its trace, compressed, and delete older ones; all are kept if "
            "left out. In place of `keep_traces` in the cluster file.",
        ),
    ] = None,
    log_format: Annotated[str, typer.Option(metavar="text|json", help="How the log is written.")] = "text",
) -> None:
    """Train as one node of a cluster; Ctrl-C or SIGTERM hands its walks on first."""
    import logging

    from walktalk.errors import SpecError
    from walktalk.runtimes.peers import Newcomer, Place, load_cluster, write_logs
    from walktalk.studies.peers import NodeJob, run_node

    logging.getLogger("walktalk").setLevel(logging.INFO)  # who comes, goes and aggregates; a fleet's nodes are quieter
    write_logs(log_format, name)
    asked, place = None, None
    if join is not None:
        asked = Newcomer(join, tuple(filter(None, (neighbours or "").split(","))))
    elif neighbours is not None:
        raise SpecError("--neighbours is for a node that joins; add --join NODE")
    if any((address, listen, site, part)):
        whose = int(part) if part is not None and part.isdecimal() else part
        told = {"address": address, "listen": listen, "site": site, "part": whose}
        place = Place.model_validate({key: value for key, value in told.items() if value is not None})
    cluster = load_cluster(config)
    if keep_traces is not None:
        cluster = cluster.model_copy(update={"keep_traces": keep_traces})
    job = NodeJob(
        cluster, name, rejoin=not fresh, device=device, join=asked, place=place, metrics=metrics, deployed=True
    )
    if collect is None:
        run_node(job)
        return
    from walktalk.cli.collect import print_collected
    from walktalk.report import write_report
    from walktalk.studies.collecting import run_and_collect

    collected = run_and_collect(job, collect)
    if collected is not None:
        print_collected(collected, write_report(collect))
