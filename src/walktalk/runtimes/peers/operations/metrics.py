"""A node's numbers for Prometheus, made when somebody asks for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from walktalk import __version__
from walktalk.runtimes.peers.node.health import STATES, Health

T = TypeVar("T", bound=tuple[str, ...])  # the values of the labels


def written_metrics(health: Health) -> Callable[[str], tuple[bytes, str]]:
    """A function from what a client accepts to the numbers as text, and the type of that text."""
    registry = CollectorRegistry()
    registry.register(NodeMetrics(health))
    ProcessCollector(registry=registry)  # memory, processor time, open files, under everybody's names for them

    def write(accept: str) -> tuple[bytes, str]:
        encode, kind = choose_encoder(accept)
        return encode(registry), kind

    return write


class NodeMetrics(Collector):
    """Collects all metrics of one node when they are asked for."""

    def __init__(self, health: Health) -> None:
        """`health`: the node as it is seen from outside."""
        self._health, self._state, self._link = health, health.state, health.link
        self._counts, self._name_of = health.reports.counts, health.reports.news.name_of

    def collect(self) -> Iterator[Metric]:
        """Collect the metrics as things are now."""
        status = self._health.status()
        yield from self._itself(status)
        yield from self._learning(status)
        yield from self._traffic()
        yield from self._neighbours()

    def describe(self) -> Iterable[Metric]:
        """Nothing before it is asked: the node may not have begun."""
        return ()

    def _itself(self, status: Mapping[str, Any]) -> Iterator[Metric]:
        health = self._health
        about = {
            "node": health.name,
            "number": str(status["node"]),
            "cluster": self._link.endpoint.cluster,
            "version": __version__,
        }
        yield labelled("walktalk_node_info", "Which node this is.", list(about), {tuple(about.values()): 1.0})
        yield gauge("walktalk_healthy", "1 where /health has no complaint.", float(not status["complaints"]))
        states = {(state,): float(state == status["state"]) for state in STATES}
        yield labelled("walktalk_state", "1 for the state that the node is in.", ["state"], states)
        yield gauge("walktalk_stuck", "1 where the node's loop stands still, and only a start helps.", health.is_stuck)
        yield gauge("walktalk_run_seconds", "How long the run has lasted.", status["seconds"])
        yield from known("walktalk_checkpoint_age_seconds", "Since the last checkpoint.", health.checkpoint_age)
        what = "Nodes that take part, as far as this one has heard; itself among them."
        yield gauge("walktalk_nodes_taking_part", what, len(status["takes_part"]))
        yield gauge(
            "walktalk_nodes_at_least", "Nodes that the run asks for; 0 where it asks for none.", status["at_least"]
        )
        yield from self._disk()
        what = "When this node's certificate ends."
        yield from known("walktalk_certificate_expiry_timestamp_seconds", what, health.certificate_end)
        what = "1, 2, 3 from 30, 7 and 1 days before this node's certificate ends; 4 where it holds no more."
        yield from known("walktalk_certificate_warning", what, health.certificate_warning)

    def _disk(self) -> Iterator[Metric]:
        health = self._health
        failed = bool(health.memory.checkpoints.failure)
        yield gauge("walktalk_checkpoint_failed", "1 where the last checkpoint could not be written.", failed)
        what = "Lines of the trace that wait for room on the disk, or were lost for want of it."
        yield gauge("walktalk_trace_waiting_lines", what, health.reports.event_log.behind)
        if (disk := health.disk) is not None:
            yield gauge("walktalk_disk_free_bytes", "Free where the node's folder is.", disk[0])
            yield gauge("walktalk_disk_bytes", "Size of the disk where the node's folder is.", disk[1])

    def _learning(self, status: Mapping[str, Any]) -> Iterator[Metric]:
        state, counts = self._state, self._counts
        yield counter("walktalk_iterations", "Trainings of this node, over all its lives.", status["iterations"])
        what = "Trainings of all nodes, as far as this one has heard."
        yield gauge("walktalk_cluster_iterations", what, status["total_iterations"])
        yield from known("walktalk_loss", "Of the model that was trained here last, on this node's data.", state.loss)
        yield SummaryMetricFamily(
            "walktalk_training_seconds", "Trainings of this life.", counts.trainings, counts.training_seconds
        )
        what = "1 where the training under way hangs, or nothing can be trained any more."
        yield gauge("walktalk_training_hangs", what, float(bool(state.hangs)))
        what = "Since the training under way began, or reported progress."
        yield from known("walktalk_training_age_seconds", what, status["training_seconds"])
        yield counter("walktalk_diverged_trainings", "Trainings whose result was not finite.", state.diverged)
        yield gauge("walktalk_walks", "Walks that are here.", len(status["walks"]))
        yield gauge("walktalk_aggregates", "1 where this node aggregates.", float(status["aggregates"]))
        yield gauge("walktalk_term", "The highest term of an aggregator that this node has recorded.", status["term"])
        what = "What happened in this life, by the trace's words: elected, suspected, lost, restarted and others."
        events = {(event,): float(count) for event, count in dict(counts.events).items()}
        yield labelled("walktalk_events", what, ["event"], events, CounterMetricFamily)

    def _traffic(self) -> Iterator[Metric]:
        counts, traffic, named = self._counts, self._link.traffic, self._name_of
        for name, what, counted in (
            ("walktalk_sent_bytes", "Bytes of the protocol's messages, as the history counts.", counts.sent_bytes),
            ("walktalk_sent_messages", "The protocol's messages.", counts.sent_messages),
        ):
            rows = {(named(peer), kind): float(count) for (peer, kind), count in dict(counted).items()}
            yield labelled(name, what, ["peer", "kind"], rows, CounterMetricFamily)
        taken = {(named(peer),): float(count) for peer, count in dict(counts.received_messages).items()}
        what = "The protocol's messages that were taken."
        yield labelled("walktalk_received_messages", what, ["peer"], taken, CounterMetricFamily)
        yield counter("walktalk_wire_sent_bytes", "Everything that was sent, tallies too.", traffic.sent_bytes)
        yield counter("walktalk_wire_received_bytes", "Everything that came whole.", traffic.received_bytes)
        yield counter("walktalk_resent_messages", "Sent again, since nobody had acknowledged them.", traffic.resent)
        yield gauge("walktalk_unacknowledged_messages", "On their way.", self._link.waiting())
        dropped = {(reason,): float(count) for reason, count in dict(traffic.dropped).items()}
        what = "What came and was no message that this node takes, by reason."
        yield labelled("walktalk_dropped_messages", what, ["reason"], dropped, CounterMetricFamily)
        refused = {(peer,): float(count) for peer, count in dict(self._state.refused).items()}
        what = "Messages whose content was refused, by sender."
        yield labelled("walktalk_refused_messages", what, ["peer"], refused, CounterMetricFamily)

    def _neighbours(self) -> Iterator[Metric]:
        endpoint, alive = self._link.endpoint, set(self._state.alive)
        there = {(name,): float(number in alive) for name, number in endpoint.neighbours.items()}
        yield labelled("walktalk_neighbour_up", "1 where the neighbour is there.", ["peer"], there)
        strangers = dict(self._health.neighbours.strangers)
        refused = {(name,): float(number in strangers) for name, number in endpoint.neighbours.items()}
        what = "1 where this node leaves the neighbour out: it acknowledges nothing, or is not of this study."
        yield labelled("walktalk_neighbour_refused", what, ["peer"], refused)


def gauge(name: str, what: str, value: float) -> Metric:
    """A metric that goes up and down."""
    return GaugeMetricFamily(name, what, float(value))


def known(name: str, what: str, value: float | None) -> Iterator[Metric]:
    """A gauge, where there is a value."""
    if value is not None:
        yield gauge(name, what, value)


def counter(name: str, what: str, value: float) -> Metric:
    """A metric that only grows; the text calls it `name_total`."""
    return CounterMetricFamily(name, what, float(value))


def labelled(
    name: str,
    what: str,
    labels: list[str],
    values: Mapping[T, float],
    family: type[GaugeMetricFamily] | type[CounterMetricFamily] = GaugeMetricFamily,
) -> Metric:
    """A metric with several labelled values."""
    made = family(name, what, labels=labels)
    for key, value in values.items():
        made.add_metric(list(key), value)
    return made
