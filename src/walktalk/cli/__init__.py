"""The command line: parses, calls, prints. `main` is what `walktalk` runs."""

from walktalk.cli.app import app, main

__all__ = ["app", "main"]
