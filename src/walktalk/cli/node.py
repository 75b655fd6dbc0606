"""What runs on the machines of a cluster, `walktalk node` and `relay`, and `collect`, which brings its results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from walktalk.api import getting_ready
from walktalk.cli.options import Board, MlflowUri, WandbProject, Without, trackers

if TYPE_CHECKING:
    from walktalk.runtimes.peers import Cluster, Node, Relay
    from walktalk.studies.collecting import Collected, Participant

# -- walktalk relay ---------------------------------------------------------------------------------------------------


def relay(
    config: Annotated[Path, typer.Option(help="The cluster's YAML file, as on every machine; it names the relay.")],
    listen: Annotated[
        str, typer.Option(help="host:port to listen on; all addresses and the port of the file's `relay` if left out.")
    ] = "",
) -> None:
    """Pass on what nodes behind NAT or firewalls say to each other; Ctrl-C or SIGTERM ends it.

    It needs a machine that all of them can dial, and nothing of the study: no data, no torch, no folder. In the cluster
    file `relay: HOST:PORT` says where it is, and `reachable: false` which nodes can only dial out. With certificates it
    needs `ca.pem`, `relay.pem` and `relay.key` (`walktalk certs --config CLUSTER.yaml` makes them), and nodes encrypt
    from one end to the other: it sees who talks to whom and how much, but not what. It may be ended and started again
    at any time; the nodes come back within seconds.
    """
    import asyncio
    import logging

    from walktalk.core.errors import SpecError
    from walktalk.runtimes.peers import Relay, load_cluster, write_logs

    write_logs("text", "relay")
    logging.getLogger("walktalk").setLevel(logging.INFO)
    cluster = load_cluster(config)
    if not cluster.relay and not listen:
        raise SpecError(f"relay: {config} names none; add `relay: HOST:PORT`, or give --listen")
    if listen and not listen.rpartition(":")[2].isdecimal():
        raise SpecError(f"--listen {listen!r}: give host:port, e.g. 0.0.0.0:7446")
    files = cluster.relay_credentials()
    asyncio.run(_serve(Relay(listen or f"0.0.0.0:{cluster.relay.rpartition(':')[2]}", files), files is not None))


async def _serve(relay: Relay, secure: bool) -> None:
    """Serve until a signal comes, then say how much was passed on."""
    import asyncio
    import signal
    from contextlib import suppress

    work = asyncio.create_task(relay.serve())
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, work.cancel)
    how = "mutual TLS" if secure else "WITHOUT certificates: anyone may come"
    typer.echo(f"relay: listens on port {relay.port}, {how}   (Ctrl-C ends it)", err=True)
    with suppress(asyncio.CancelledError):
        await work
    typer.echo(f"relay: ends; {relay.passed_on.total / 1e6:,.1f} MB were passed on", err=True)


# -- walktalk collect -------------------------------------------------------------------------------------------------


def collect(
    config: Annotated[Path, typer.Option(help="The cluster's YAML file.")],
    out: Annotated[Path, typer.Option(help="The folder to write: model, history, trace, page.")],
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the run is over; nodes stay up until they have been asked.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace what is in the folder, once the new results are whole.")
    ] = False,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long to wait for answers.")] = 3.0,
    without: Without = None,
    tensorboard: Board = None,
    mlflow: MlflowUri = None,
    wandb: WandbProject = None,
) -> None:
    """Collect what a cluster has learned: its model, who took part, the history and a page, in one folder.

    Works while it runs, after its end, and where nodes are dead: of a node that does not answer, what is in its folder
    counts, if that is on this machine. No samples travel. The exit code is 1 where fewer nodes took part than
    `at_least` in the cluster's file asks for; what there is was written all the same.
    """
    with getting_ready("walktalk"):
        from walktalk.api import Audience, show_folder
        from walktalk.runtimes.peers import load_cluster
        from walktalk.studies.collecting import collect as collected_from

    audience = Audience(trackers(tensorboard, mlflow, wandb))  # what is missing is told before anybody is asked
    try:
        with _shown() as shown:
            collected = collected_from(
                load_cluster(config).without(without or ()),
                out,
                overwrite=overwrite,
                wait=wait,
                seconds=seconds,
                say=lambda line: typer.echo(f"collect: {line}", err=True),
                shown=shown,
            )
    except KeyboardInterrupt as stop:
        raise KeyboardInterrupt("stopped; nothing was written, and the nodes go on") from stop
    show_folder(audience, out, collected)
    print_collected(collected, page_of(out))
    if collected.too_few:
        raise typer.Exit(TOO_FEW)


@contextmanager
def _shown() -> Iterator[Callable[[str], None]]:
    """How far the run is, on a line of the terminal that goes away again; elsewhere nothing."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda line: None
        return
    with console.status("collects …") as line:
        yield line.update


TOO_FEW = 1  # exit code: fewer nodes took part than the cluster's file asks for
AWAY = ("left", "gone")  # states of a node that is not there any more


def page_of(folder: Path) -> Path | None:
    """The page of what was collected; None where nobody has told a loss, so that there is nothing to draw."""
    from walktalk.records import StudyFolder
    from walktalk.report import write_report

    rows = StudyFolder(folder).history.read_text(encoding="utf-8").count("\n") - 1
    return write_report(folder) if rows > 0 else None


def print_collected(collected: Collected, page: Path | None) -> None:
    """Who took part, which copy the model is, and where everything lies."""
    for one in collected.nodes:
        typer.echo(f"{one.name:12} {_in_words(one)}")
    done, gone = sum(one.iterations for one in collected.nodes), sum(one.state in AWAY for one in collected.nodes)
    away = f", {gone} of which have left or are gone" if gone else ""
    typer.echo(f"\n{done:,} iterations of {len(collected.nodes)} nodes{away}.")
    typer.echo(f"The run {'is still going on' if collected.state == 'running' else f'is {collected.state}'}.")
    if collected.absent:
        typer.echo(f"MISSING: {', '.join(collected.absent)} never took part.")
    if collected.too_few:
        typer.echo(f"TOO FEW: {collected.too_few}.")
    typer.echo(f"The model is {collected.copy}.")
    if collected.best:
        typer.echo(f"The best model is {collected.best}; it is beside the other, as best.safetensors.")
    typer.echo(f"Model    {collected.model}")
    untold = "none: nobody has told a loss; a script of your own does with visit.finish(metrics={'train_loss': …})"
    typer.echo(f"Report   {untold if page is None else page}")


def _in_words(one: Participant) -> str:
    if not one.source:
        return "nothing is known of it: it does not answer, and its folder is not here"
    lives = "" if one.lives == 1 else f" in {one.lives} lives"
    took_part = f"{one.seconds:,.1f} s{lives}, " if one.lives else ""
    said = ", as others say" if one.source == "what others say" else ""
    return f"{one.state:9} {took_part}{one.iterations:,} iterations, {one.bytes / 1e6:,.1f} MB sent{said}"


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
    tensorboard: Board = None,
    mlflow: MlflowUri = None,
    wandb: WandbProject = None,
) -> None:
    """Train as one node of a cluster; Ctrl-C or SIGTERM hands its walks on first."""
    import logging

    from walktalk.core.errors import SpecError
    from walktalk.runtimes.peers import JoinRequest, Place, load_cluster, write_logs
    from walktalk.studies.peers import NodeJob, run_node

    logging.getLogger("walktalk").setLevel(logging.INFO)  # who comes, goes and aggregates; a fleet's nodes are quieter
    write_logs(log_format, name)
    asked, place = None, None
    if join is not None:
        asked = JoinRequest(join, tuple(filter(None, (neighbours or "").split(","))))
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
    with _tracked(cluster, trackers(tensorboard, mlflow, wandb)) as meets:
        if collect is None:
            run_node(job, meets=meets)
            return

        from walktalk.studies.collecting import run_and_collect

        collected = run_and_collect(job, collect, meets)
    if collected is not None:
        print_collected(collected, page_of(collect))


@contextmanager
def _tracked(cluster: Cluster, callbacks: list[Any]) -> Iterator[Callable[[Node], None]]:
    """What shows the node to callbacks, as long as it runs; nothing where there are none."""
    if not callbacks:
        yield lambda node: None
        return
    from walktalk.api import Audience, watching
    from walktalk.studies import load_spec, make_spec

    spec = make_spec(cluster.study) if isinstance(cluster.study, dict) else load_spec(cluster.study)
    with watching(Audience(callbacks), spec, cluster.algorithm or spec.algorithms[0].title) as watcher:
        yield watcher.begin
