"""The sections of the page that need no script: conclusion, algorithms, results, settings, records, incidents."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from walktalk.records import StudyFolder
from walktalk.report.figures import is_share, with_unit
from walktalk.report.page.conclusions import Card, Conclusion, Incident
from walktalk.report.page.data import MORE_IS_BETTER, Name, within
from walktalk.report.results import Cell, columns_of, results_table
from walktalk.report.settings import as_yaml, from_defaults
from walktalk.report.study import Study

# -- HTML that what it shows cannot break: text is escaped, unless it was made here -----------------------------------

VOID = ("br", "input", "meta", "link", "hr")  # elements without an end


class Html(str):
    """Text that is HTML already and needs no escaping."""

    __slots__ = ()


def tag(name: str, *children: str, **attributes: str | bool | None) -> Html:
    """An element; `class_`, `for_` for words that Python keeps to itself, `data_sort` for `data-sort`.

    An attribute that is None or False is left out; one that is True has no value.
    """
    given = "".join(_attribute(key, value) for key, value in attributes.items() if value is not None)
    inner = "".join(child if isinstance(child, Html) else escape(child) for child in children)
    return Html(f"<{name}{given}>" if name in VOID else f"<{name}{given}>{inner}</{name}>")


def together(*parts: str) -> Html:
    """Joins pieces of text and HTML into one; plain text is escaped."""
    return Html("".join(part if isinstance(part, Html) else escape(part) for part in parts))


def _attribute(key: str, value: str | bool | None) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'


FILES = {
    "spec.yaml": "the whole specification, to run it again",
    "history.csv": "every evaluation of every run",
    "summary.json": "who won, with the versions and the machine",
}
RUN_FILES = {"history.csv": "evaluations", "trace.parquet": "every event", "model.safetensors": "the model"}
MOST_RUNS = 200  # that are linked one by one
FEW = 12  # algorithms that are told at once; more would push the curves off the page
OTHERS_LOOPS = ("outside", "loop")  # tasks that say nothing of what is learned
TOPOLOGIES = {
    "erdos_renyi": "a random graph",
    "complete": "a complete graph",
    "edge_list": "a graph from a file",
    "edges": "a graph of one's own",
    "given": "a graph of one's own",
    "us_five_sites": "five sites in the US",
}


def lead(study: Study) -> str:
    """One sentence on what the study did."""
    spec, repetitions = study.spec, study.spec.repetitions
    nodes = "" if study.nodes is None else f"{study.nodes:,} "
    network = TOPOLOGIES.get(spec.network.topology, f"a {spec.network.title.replace('_', ' ')}")
    how = "simulated" if study.engine == "sim" else "run for real, one process a node"
    how = how if study.cluster is None else f"run for real by the cluster {study.cluster['name']}"
    own = spec.task.name == "given" and spec.task.title == "own"  # a module and data, handed over without a name
    what = "a model of one's own" if own or spec.task.name in OTHERS_LOOPS else spec.task.title
    count = len(spec.algorithms)
    many = f"{count} algorithms" if count > 1 else "One algorithm"
    times = f"{repetitions} times each" if repetitions > 1 else "once" if count == 1 else "once each"
    going_on = "" if study.finished else " It is still running."
    if study.cluster is not None and study.cluster["state"] != "finished":
        so_far = "not over" if study.cluster["state"] == "running" else "stopped"
        going_on = f" The run was {so_far} when this was collected."
    return f"{many} learning {what} on {nodes}nodes, joined by {network}; {how}, {times}.{going_on}"


def swatch(label: str | None) -> Html:
    """An algorithm's colour; the script gives it."""
    return tag("span", "", class_="swatch", data_algorithm=label, aria_hidden="true")


def conclusion_html(told: Conclusion, names: Mapping[str, Name]) -> Html:
    """The sentence at the top of the page, and a card for each axis."""
    cards = [_card(card, names) for card in told.cards]
    sentence = tag("p", told.sentence, class_="verdict")
    return together(sentence, tag("div", *cards, class_="cards")) if cards else sentence


def _card(card: Card, names: Mapping[str, Name]) -> Html:
    value = tag("p", tag("b", card.value), f" · {card.against}" if card.against else "", class_="value")
    shown = tag("p", card.value, class_="winner") if card.winner is None else together(_who(card, names), value)
    return tag(
        "div", tag("p", card.title, class_="what"), shown, tag("p", card.meaning, class_="meaning"), class_="card"
    )


def _who(card: Card, names: Mapping[str, Name]) -> Html:
    """The best of an axis; of two that are too close to call, both."""
    first = tag("span", swatch(card.winner), names[card.winner or ""].name)
    if card.either is None:
        return tag("p", first, class_="winner")
    second = tag("span", swatch(card.either), within(names[card.either].name))
    return tag("p", first, " or ", second, class_="winner either")


def algorithms_html(names: Mapping[str, Name]) -> Html:
    """A list that describes each algorithm in a line."""
    entries = []
    for label, name in names.items():
        files = [tag("span", name.label, class_="label")] if name.label != name.name else []
        entries += [tag("dt", swatch(label), name.name), tag("dd", name.description, *files)]
    listed = tag("dl", *entries, class_="algorithms")
    return listed if len(names) <= FEW else _folded(f"What each of the {len(names)} algorithms does", listed)


def settings_html(study: Study) -> Html:
    """What the study says itself first; what is left at its default folded."""
    chosen, usual = from_defaults(study.spec)
    rest = tag("details", tag("summary", f"{len(usual)} settings at their defaults"), _pairs(usual))
    return together(_pairs(chosen) if chosen else tag("p", "Everything is at its default."), rest)


def _pairs(settings: Mapping[str, Any]) -> Html:
    rows = [
        tag("tr", tag("th", tag("code", key), scope="row"), tag("td", as_yaml(value)))
        for key, value in settings.items()
    ]
    return tag("table", tag("tbody", *rows), class_="settings")


def incidents_html(incidents: Mapping[str, Sequence[Incident]], names: Mapping[str, Name], time: str) -> Html:
    """What went wrong and when, one list an algorithm; nothing where nothing did."""
    if not incidents:
        return Html("")
    lists = [
        tag("div", tag("h3", swatch(label), names[label].name), tag("ol", *map(_incident, told)), class_="incidents")
        for label, told in incidents.items()
    ]
    note = f"In the first repetition, by {time}; ✕ marks what went wrong, ↻ what mended it or was done about it."
    return together(tag("p", note, class_="note"), tag("div", *lists, class_="columns"))


def _incident(one: Incident) -> Html:
    mark = tag("span", "✕" if one.fault else "↻", class_="fault" if one.fault else "mended", aria_hidden="true")
    return tag("li", tag("time", f"{one.time:,.4g} s"), mark, tag("span", one.words))


def records_html(folder: StudyFolder, algorithms: Sequence[str], names: Mapping[str, Name], repetitions: int) -> Html:
    """Links to everything that the study wrote, relative to the page."""
    files = [
        tag("li", tag("a", name, href=name), tag("span", f" {words}", class_="muted"))
        for name, words in FILES.items()
        if (folder.path / name).is_file()
    ]
    return together(tag("ul", *files, class_="files"), _figures(folder), _runs(folder, algorithms, names, repetitions))


def _figures(folder: StudyFolder) -> Html:
    found: dict[str, list[str]] = {}
    for path in sorted(folder.figures.glob("*.*")) if folder.figures.is_dir() else []:
        found.setdefault(path.stem, []).append(path.suffix.removeprefix("."))
    entries = [
        tag("li", f"{stem.replace('-', ' ')} ", *(_link(f"figures/{stem}.{kind}", kind.upper()) for kind in kinds))
        for stem, kinds in found.items()
    ]
    title = counted(len(found), "figure") + " for print"
    return _folded(title, tag("ul", *entries, class_="files")) if found else Html("")


def _runs(folder: StudyFolder, algorithms: Sequence[str], names: Mapping[str, Name], repetitions: int) -> Html:
    entries: list[Html] = []
    for label in algorithms:
        for repetition in range(repetitions):
            here = folder.run(label, repetition).path
            there = [name for name in RUN_FILES if (here / name).is_file()]
            if there and len(entries) < MOST_RUNS:
                base = _relative(here, folder.path)
                links = (_link(f"{base}/{name}", RUN_FILES[name]) for name in there)
                entries.append(tag("li", f"{names[label].name}, repetition {repetition} ", *links))
    total = len(algorithms) * repetitions
    left = f"; the first {MOST_RUNS} of them" if total > MOST_RUNS else ""
    return _folded(f"{counted(total, 'run')}{left}", tag("ul", *entries, class_="files")) if entries else Html("")


def counted(count: int, word: str) -> str:
    """A number with its word: "1 run", "1,200 runs"."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _folded(title: str, content: Html) -> Html:
    return tag("details", tag("summary", title), content)


def _link(href: str, text: str) -> Html:
    return together(tag("a", text, href=href), " ")


def _relative(path: Path, to: Path) -> str:
    return path.relative_to(to).as_posix()


def repeat_html(command: str) -> Html:
    """The command, with a button that copies it."""
    return tag(
        "div",
        tag(
            "pre",
            tag("code", command, id="command"),
            tabindex="0",
            role="region",
            aria_label="Command that repeats the study",
        ),
        tag("button", "Copy", type="button", class_="button", id="copy"),
        class_="command",
    )


def circumstances(summary: Mapping[str, Any]) -> str:
    """The sentence on versions and machine that the study ran with."""
    versions, machine = summary.get("versions", {}), summary.get("machine", {})
    told = [f"{name} {version}" for name, version in versions.items() if version]
    told += [f"{name} {value}" for name, value in machine.items()]
    return f"Ran with {', '.join(told)}." if told else ""


# -- who took part in a deployment, and whose copy of the model counts ------------------------------------------------

TITLES = ("Node", "Site", "State", "Took part", "Samples", "Iterations", "Sent")


def participants_html(cluster: Mapping[str, Any] | None) -> Html:
    """A sentence on the model and a row for each node; nothing for a study that was no deployment."""
    if cluster is None:
        return Html("")
    nodes, located = cluster["nodes"], any(node["site"] for node in cluster["nodes"])
    shown = [title for title in TITLES if located or title != "Site"]
    head = tag("thead", tag("tr", *(tag("th", title, scope="col") for title in shown)))
    rows = [tag("tr", tag("th", node["name"], scope="row"), *_cells(node, located)) for node in nodes]
    table = tag("table", head, tag("tbody", *rows), class_="results")
    frame = tag("div", table, class_="scroller", tabindex="0", role="region", aria_label="Nodes that took part")
    best = f" The best that nodes have had is {cluster['best']}." if cluster.get("best") else ""
    model = f"The model is {cluster['copy']}.{best}"
    note = "A loss is what nodes measured on their own data, of models that had just come to them. No data left a node."
    return together(tag("p", model, class_="intro"), _missing_html(cluster), frame, tag("p", note, class_="note"))


def _missing_html(cluster: Mapping[str, Any]) -> Html:
    """Who never took part, loudly; nothing where all did."""
    missing, few = cluster.get("missing") or [], cluster.get("too_few") or ""
    words = [f"Never took part: {', '.join(missing)}." if missing else "", f"Too few: {few}." if few else ""]
    return tag("p", tag("strong", " ".join(filter(None, words))), role="note") if any(words) else Html("")


def _cells(node: Mapping[str, Any], located: bool) -> list[Html]:
    lives = "" if node["lives"] < 2 else f", {node['lives']} lives"
    told = [
        f"{node['seconds']:,.0f} s{lives}" if node["lives"] else "–",
        f"{node['samples']:,}" if node["samples"] else "–",
    ]
    told += [f"{node['iterations']:,}", with_unit("bits", 8 * node["bytes"])]
    site = [node["site"]] if located else []
    cells = [*site, node["state"] or "never seen", *(told if node["source"] else [""] * len(told))]
    return [tag("td", cell) for cell in cells]


# -- how good each algorithm's model is at every site: a mean hides the one for which it is no good --------------------

MOST_SITES = 60  # rows; of more, those for which the models are worst
OF_STUDY = (
    "The model that each algorithm puts out, in the first repetition, on the training data of every site; accuracy and "
    "test loss where sites have test samples of their own."
)
OWN_OF_STUDY = (
    "The own model of every node, or of every walk, in the end of the first repetition, on some samples of every site."
)
OWN_OF_CLUSTER = "The walk that every node measured last, of each walk that came to it, on its own data."
NOT_A_MEASURE = ("algorithm", "model", "node", "samples")
OF_CLUSTER = "Every node measured, on its own data, the model that had come to it last. No data left a node."


def sites_html(table: pd.DataFrame | None, names: Mapping[str, Name], of_cluster: bool = False) -> Html:
    """A row for each site, a column for each algorithm and what was measured; nothing where nothing was.

    Args:
        table: as `sites.csv` has it.
        names: of the algorithms.
        of_cluster: whether nodes measured themselves, each the models that came to it.
    """
    if table is None or table.empty:
        return Html("")
    by_label = {label: part.set_index("node") for label, part in table.groupby("algorithm") if label in names}
    labels = [label for label in names if label in by_label]
    if not labels:
        return Html("")
    metrics = [str(key) for key in table.columns[3:] if table[key].notna().any()]
    if not metrics:  # all have diverged
        return Html("")
    wide = {(label, key): by_label[label][key] for label in labels for key in metrics}
    samples = table.drop_duplicates("node").set_index("node")["samples"]
    worst = set(wide[labels[0], metrics[0]].reindex(samples.index).fillna(math.inf).nlargest(MOST_SITES).index)
    shown = [node for node in samples.index if node in worst]
    heads = [_measured_name(key) + (f" · {names[label].name}" if len(labels) > 1 else "") for label, key in wide]
    head = tag("tr", *(sortable_head(text, place) for place, text in enumerate(["Site", "Samples", *heads])))
    rows = [_site_row(str(node), int(samples[node]), {of: wide[of].get(node) for of in wide}) for node in shown]
    last = _site_row("Worst site", None, {(label, key): _worst(key, of) for (label, key), of in wide.items()})
    body = tag("table", tag("thead", head), tag("tbody", *rows), tag("tfoot", last), class_="results sortable")
    frame = tag("div", body, class_="scroller", tabindex="0", role="region", aria_label="Table of sites")
    whose = OF_CLUSTER if of_cluster else OF_STUDY
    few = f" Of {len(samples):,} sites, the {len(shown)} with the highest loss." if len(shown) < len(samples) else ""
    return together(frame, tag("p", f"{whose}{few}", class_="note"))


def models_html(table: pd.DataFrame | None, names: Mapping[str, Name], of_cluster: bool) -> Html:
    """A table for each algorithm: the own model of every node or walk, on every site's data.

    Args:
        table: as `models.csv` has it.
        names: of the algorithms.
        of_cluster: whether nodes measured themselves, each the walks that came to it.
    """
    if table is None:
        return Html("")
    whole = [str(key) for key in table.columns if key not in NOT_A_MEASURE and table[key].notna().all()]
    shown = [label for label in names if (table["algorithm"] == label).any()] if len(table) else []
    if not whole or not shown:
        return Html("")
    key = "test_accuracy" if "test_accuracy" in whole else whole[0]
    tables = [tag("h3", f"Every model on every site's data: {_measured_name(key).lower()}")]
    for label in shown:
        of = table[table["algorithm"] == label].pivot_table(index="model", columns="node", values=key, sort=False)
        head = tag("tr", *(sortable_head(text, place) for place, text in enumerate(["Model", *map(str, of.columns)])))
        rows = [
            tag("tr", tag("th", model, scope="row", data_sort=model), *map(_cell(key), of.loc[model]))
            for model in of.index
        ]
        caption = [tag("caption", names[label].name)] if len(shown) > 1 else []
        body = tag("table", *caption, tag("thead", head), tag("tbody", *rows), class_="results sortable")
        tables.append(tag("div", body, class_="scroller", tabindex="0", role="region", aria_label="Models by site"))
    tables.append(tag("p", OWN_OF_CLUSTER if of_cluster else OWN_OF_STUDY, class_="note"))
    return together(*tables)


def _measured_name(key: str) -> str:
    return {"train_loss": "Loss", "test_accuracy": "Accuracy (%)", "test_loss": "Test loss"}.get(
        key, key.replace("_", " ").capitalize()
    )


def _site_row(name: str, samples: int | None, values: Mapping[tuple[str, str], float | None]) -> Html:
    first = tag("th", name, scope="row", data_sort=name)
    told = "" if samples is None else f"{samples:,}" if samples else "–"  # nobody need say, where weights are declared
    cells = [tag("td", told, data_sort=str(samples or ""))]
    for (_, key), value in values.items():
        cells.append(_cell(key)(value))
    return tag("tr", first, *cells)


def _cell(key: str) -> Callable[[float | None], Html]:
    """Shows a number of what was measured, as a share where it is one."""

    def shown(value: float | None) -> Html:
        if value is None or not math.isfinite(value):
            return tag("td", "–", data_sort="")
        return tag("td", f"{100 * value:.1f}" if is_share(key) else f"{value:.3g}", data_sort=str(value))

    return shown


def _worst(key: str, values: pd.Series) -> float:
    """The worst of all sites."""
    less = not any(word in key.lower() for word in MORE_IS_BETTER)
    return float(values.max() if less else values.min())


# -- the table of results: the terminal's, with a number behind every cell to sort by ---------------------------------


def results_html(summary: Mapping[str, Any], names: Mapping[str, Name], time: str) -> Html:
    """The table, each column sortable, the best of each marked where somebody won."""
    table = results_table(summary, lambda label: names[label].name, further=True)
    columns = columns_of(summary, further=True)
    titles = {"Time": time.capitalize()}
    head = tag("tr", *(sortable_head(titles.get(text, text), place) for place, text in enumerate(table.head)))
    rows = [
        _row(row, [_key(column.spread(summary["algorithms"][label])) for column in columns], names[label], label)
        for (label, row) in zip(summary["algorithms"], table.rows, strict=True)
    ]
    warning = tag("p", table.warning, class_="warning", role="note") if table.warning else Html("")
    body = tag("table", tag("thead", head), tag("tbody", *rows), class_="results sortable", id="results-table")
    frame = tag("div", body, class_="scroller", tabindex="0", role="region", aria_label="Table of results")
    marked = any(cell.best for row in table.rows for cell in row)
    note = f"{table.note} The best of each column is marked ★." if marked else table.note
    return together(frame, warning, tag("p", note, class_="note"))


def sortable_head(text: str, place: int, title: str | None = None, words: bool = False) -> Html:
    """The head of a column by which a table can be sorted; `title`: what it is called elsewhere, such as in a study.

    `words`: the column has words, no numbers, and begins at the left.
    """
    button = tag("button", text, tag("span", "", class_="arrow", aria_hidden="true"), type="button")
    side = "words" if words else None
    return tag("th", button, scope="col", aria_sort="none", data_column=str(place), title=title, class_=side)


def _row(cells: Sequence[Cell], keys: Sequence[str], name: Name, label: str) -> Html:
    first = tag("th", swatch(label), name.name, scope="row", data_sort=name.name)
    rest = [
        tag("td", cell.text, *_star(cell.best), data_sort=key, class_="best" if cell.best else None)
        for cell, key in zip(cells[1:], keys, strict=True)
    ]
    return tag("tr", first, *rest, data_algorithm=label)


def _star(best: bool) -> list[Html]:
    return [tag("span", " ★", title="best")] if best else []


def _key(spread: Mapping[str, Any] | None) -> str:
    """The number behind a cell; nothing where there is none, which sorts last."""
    return "" if spread is None else str(float(spread["mean"]))
