"""The paper's figures and tables as studies: which runs each needs, at the paper's scale or in small."""

from walktalk.paper.changes import without_meaning
from walktalk.paper.figures import FIGURES, SCALES, TOPOLOGIES, Figure, Panel, Scale, figure, panel_specs, settings
from walktalk.paper.run import PanelRun, check_figure, run_figure
from walktalk.paper.tables import tables_text

__all__ = [
    "FIGURES",
    "SCALES",
    "TOPOLOGIES",
    "Figure",
    "Panel",
    "PanelRun",
    "Scale",
    "check_figure",
    "figure",
    "panel_specs",
    "run_figure",
    "settings",
    "tables_text",
    "without_meaning",
]
