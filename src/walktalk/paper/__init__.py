"""The paper's figures and tables as studies: which runs each needs, at the paper's scale or in small."""

from typing import TYPE_CHECKING

from walktalk import lazy

if TYPE_CHECKING:
    from walktalk.paper.changes import without_meaning
    from walktalk.paper.figures import (
        FAMILY,
        FIGURES,
        SCALES,
        TOPOLOGIES,
        Figure,
        Panel,
        Scale,
        figure,
        panel_specs,
        settings,
    )
    from walktalk.paper.run import PanelRun, check_figure, run_figure
    from walktalk.paper.tables import markdown, tables_text

_HOMES = {
    "changes": ("without_meaning",),
    "figures": (
        "FAMILY",
        "FIGURES",
        "SCALES",
        "TOPOLOGIES",
        "Figure",
        "Panel",
        "Scale",
        "figure",
        "panel_specs",
        "settings",
    ),
    "run": ("PanelRun", "check_figure", "run_figure"),
    "tables": ("markdown", "tables_text"),
}

__all__ = [
    "FAMILY",
    "FIGURES",
    "SCALES",
    "TOPOLOGIES",
    "Figure",
    "Panel",
    "PanelRun",
    "Scale",
    "check_figure",
    "figure",
    "markdown",
    "panel_specs",
    "run_figure",
    "settings",
    "tables_text",
    "without_meaning",
]

__getattr__ = lazy.attributes(__name__, _HOMES)
