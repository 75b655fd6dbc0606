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
        TUNED,
        Figure,
        Panel,
        Scale,
        Tuning,
        figure,
        only_panels,
        panel_specs,
        settings,
    )
    from walktalk.paper.run import PanelRun, check_figure, run_figure, work_ahead
    from walktalk.paper.tables import markdown, tables_text
    from walktalk.paper.variants import VARIANTS, Variant, varied

_HOMES = {
    "changes": ("without_meaning",),
    "figures": (
        "FAMILY",
        "FIGURES",
        "SCALES",
        "TOPOLOGIES",
        "TUNED",
        "Figure",
        "Panel",
        "Scale",
        "Tuning",
        "figure",
        "only_panels",
        "panel_specs",
        "settings",
    ),
    "run": ("PanelRun", "check_figure", "run_figure", "work_ahead"),
    "tables": ("markdown", "tables_text"),
    "variants": ("VARIANTS", "Variant", "varied"),
}

__all__ = [
    "FAMILY",
    "FIGURES",
    "SCALES",
    "TOPOLOGIES",
    "TUNED",
    "VARIANTS",
    "Figure",
    "Panel",
    "PanelRun",
    "Scale",
    "Tuning",
    "Variant",
    "check_figure",
    "figure",
    "markdown",
    "only_panels",
    "panel_specs",
    "run_figure",
    "settings",
    "tables_text",
    "varied",
    "without_meaning",
    "work_ahead",
]

__getattr__ = lazy.attributes(__name__, _HOMES)
__dir__ = lazy.listing(__all__)
