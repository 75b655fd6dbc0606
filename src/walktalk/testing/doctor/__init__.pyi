from .checkup import Finding as Finding
from .checkup import State as State
from .checkup import checkup as checkup
