"""The paper's figures, drawn from the folders of their studies, and who wins in them."""

from walktalk.paper.drawing.figures import CELLS, make
from walktalk.paper.drawing.grid import Cell, Shown, grid
from walktalk.paper.drawing.rate_falls import rate_falls
from walktalk.paper.drawing.setting import setting_of

__all__ = ["CELLS", "Cell", "Shown", "grid", "make", "rate_falls", "setting_of"]
