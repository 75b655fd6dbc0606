from .collect import Collected as Collected
from .collect import collect as collect
from .collect import run_and_collect as run_and_collect
from .gather import Participant as Participant
