"""Who took part in a deployment and for how long, and whose copy of the model counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from walktalk.plots import in_words
from walktalk.report.page.markup import Html, tag, together

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
    model = f"The model is {cluster['copy']}."
    note = "A loss is what nodes measured on their own data, of models that had just come to them. No data left a node."
    return together(tag("p", model, class_="intro"), frame, tag("p", note, class_="note"))


def _cells(node: Mapping[str, Any], located: bool) -> list[Html]:
    lives = "" if node["lives"] < 2 else f", {node['lives']} lives"
    told = [f"{node['seconds']:,.0f} s{lives}", f"{node['samples']:,}" if node["samples"] else "–"]
    told += [f"{node['iterations']:,}", in_words("bits", 8 * node["bytes"])]
    site = [node["site"]] if located else []
    cells = [*site, node["state"] or "never seen", *(told if node["source"] else [""] * len(told))]
    return [tag("td", cell) for cell in cells]
