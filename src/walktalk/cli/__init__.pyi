from .app import app as app
from .app import main as main
