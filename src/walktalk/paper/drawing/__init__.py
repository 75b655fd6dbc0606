"""The paper's figures, drawn from the folders of their studies, and who wins in them."""

from walktalk.paper.drawing.figures import CELLS, make
from walktalk.paper.drawing.grid import Cell, Shown, grid
from walktalk.paper.drawing.said_of_spec import rate_falls, setting_of

__all__ = ["CELLS", "Cell", "Shown", "grid", "make", "rate_falls", "setting_of"]
