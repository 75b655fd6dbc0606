"""The page of a study: one HTML file with everything in it; `html` puts it together, `parts` says what is on it."""

from walktalk.report.page.html import json_text, page_html, write_page, write_report
from walktalk.report.page.network import network_data
from walktalk.report.page.parts import PageParts, curve_data, drawings_of, page_parts

__all__ = [
    "PageParts",
    "curve_data",
    "drawings_of",
    "json_text",
    "network_data",
    "page_html",
    "page_parts",
    "write_page",
    "write_report",
]
