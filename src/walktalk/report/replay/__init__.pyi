from .data import replay_data as replay_data
from .data import runs_data as runs_data
from .film import write_film as write_film
