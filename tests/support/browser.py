"""A headless Chromium for tests of pages: the system's own, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SECONDS = 120  # of a page that is waited for: far more than it needs, the machine may be busy
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def chromium() -> str | None:
    """Where a browser is: as PLAYWRIGHT_CHROMIUM says, or on the path; none if there is none."""
    said = os.environ.get("PLAYWRIGHT_CHROMIUM")
    return said or next((found for name in NAMES if (found := shutil.which(name))), None)


def why_not() -> str | None:
    """The reason for which pages cannot be tried here; none if they can."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "Playwright is not installed: pip install playwright"
    return None if chromium() else "no browser on the path: apt-get install chromium, or set PLAYWRIGHT_CHROMIUM"


@contextmanager
def browser() -> Iterator[Any]:
    """A browser, closed in the end."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        try:
            yield opened
        finally:
            opened.close()


class Visit:
    """A page that is open, and everything that it complained of or asked for."""

    def __init__(self, browser: Any, path: Path, *, width: int = 1200, theme: str = "light", address: str = "") -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
        self.context.set_default_timeout(1000 * SECONDS)
        self.page: Any = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri() + address)

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def __enter__(self) -> Visit:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()
