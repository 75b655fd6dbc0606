"""The command line: parses, calls, prints. `main` is what `walktalk` runs."""

from walktalk.cli.app import app, main
from walktalk.lazy import listing

__all__ = ["app", "main"]

__dir__ = listing(__all__)
