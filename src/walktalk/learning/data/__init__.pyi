from .files import DATASETS as DATASETS
from .files import Dataset as Dataset
from .files import check as check
from .files import fetch as fetch
from .files import home as home
from .files import locate as locate
