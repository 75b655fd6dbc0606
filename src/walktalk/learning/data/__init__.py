"""Data sets that are files: where they lie, whether they are whole, how to get them."""

from walktalk.learning.data.files import DATASETS, Dataset, check, fetch, home, locate

__all__ = ["DATASETS", "Dataset", "check", "fetch", "home", "locate"]
