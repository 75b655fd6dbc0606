"""What of the package's description depends on where it is published: links of the README, and the project's addresses.

Everything else is in pyproject.toml. On GitHub's runners GITHUB_SERVER_URL and GITHUB_REPOSITORY say where the sources
are, so the release's page on a package index has links and pictures that work. Anywhere else no address is known: then
what would lead nowhere is left out of the description, rather than pointing to an address that somebody made up.
"""

import os
import re
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).parent
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|mailto:|#)([^)\s]+)\)")


def home() -> str:
    """The repository's address; empty where none is known."""
    server, repository = os.environ.get("GITHUB_SERVER_URL"), os.environ.get("GITHUB_REPOSITORY")
    return f"{server}/{repository}" if server and repository else ""


def version() -> str:
    """The one that the package itself says."""
    source = (HERE / "src" / "walktalk" / "__init__.py").read_text(encoding="utf-8")
    return re.search(r'^__version__ = "(.+)"', source, re.MULTILINE)[1]


def description() -> str:
    """README.md with links that work away from the repository."""

    def elsewhere(link: "re.Match[str]") -> str:
        picture, text, target = link.groups()
        if not home():
            return "" if picture else text
        return f"{picture}[{text}]({home()}/{'raw' if picture else 'blob'}/v{version()}/{target})"

    return LINK.sub(elsewhere, (HERE / "README.md").read_text(encoding="utf-8"))


def addresses() -> "dict[str, str]":
    """For the index's side bar."""
    if not home():
        return {}
    return {
        "Source": home(),
        "Issues": f"{home()}/issues",
        "Changelog": f"{home()}/blob/v{version()}/CHANGELOG.md",
    }


setup(long_description=description(), long_description_content_type="text/markdown", project_urls=addresses())
