"""What a shell offers after the Tab key, beside options."""

from __future__ import annotations


def studies(incomplete: str) -> list[str]:
    """Presets that begin like this; files are the shell's own part."""
    from walktalk.studies import preset_names

    return [name for name in preset_names() if name.startswith(incomplete)]


def tables(incomplete: str) -> list[str]:
    """Published tables that begin like this."""
    from walktalk import published

    return [name for name in published.TABLES if name.startswith(incomplete)]


def figures(incomplete: str) -> list[str]:
    """Studies of the paper that begin like this."""
    from walktalk import paper

    return [name for name in (*paper.FIGURES, "all") if name.startswith(incomplete)]
