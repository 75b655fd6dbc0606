"""A page of what runs: of a study (`live_page`), while it runs, on this machine unless told otherwise."""

from walktalk.report.live.study import LivePage, live_page

__all__ = ["LivePage", "live_page"]
