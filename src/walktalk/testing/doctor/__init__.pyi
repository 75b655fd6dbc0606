from .checkup import checkup as checkup
from .machine import Finding as Finding
from .machine import State as State
