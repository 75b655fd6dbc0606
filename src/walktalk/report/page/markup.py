"""HTML that cannot be broken by what it shows: text is escaped, and only what was made here is taken as it is."""

from __future__ import annotations

from html import escape

VOID = ("br", "input", "meta", "link", "hr")  # elements without an end


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def tag(name: str, *children: str, **attributes: str | bool | None) -> Html:
    """An element; `class_`, `for_` for words that Python keeps to itself, `data_sort` for `data-sort`.

    An attribute that is None or False is left out; one that is True has no value.
    """
    given = "".join(_attribute(key, value) for key, value in attributes.items() if value is not None)
    inner = "".join(child if isinstance(child, Html) else escape(child) for child in children)
    return Html(f"<{name}{given}>" if name in VOID else f"<{name}{given}>{inner}</{name}>")


def together(*parts: str) -> Html:
    """Several one after the other."""
    return Html("".join(part if isinstance(part, Html) else escape(part) for part in parts))


def _attribute(key: str, value: str | bool | None) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'
