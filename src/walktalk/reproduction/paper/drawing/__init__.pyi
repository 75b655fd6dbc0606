from .family import rate_falls as rate_falls
from .family import setting_of as setting_of
from .figures import CELLS as CELLS
from .figures import Cell as Cell
from .figures import Shown as Shown
from .figures import grid as grid
from .figures import make as make
