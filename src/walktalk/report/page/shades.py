"""An algorithm's colour, light or dark enough to be seen on a light and on a dark page."""

from __future__ import annotations

import colorsys

LIGHT, DARK = "#ffffff", "#16191f"  # the surfaces that curves are drawn on, as in page.css
CONTRAST = 3.0  # of graphics that have to be understood: WCAG 2.1, 1.4.11


def on_light(colour: str) -> str:
    """The colour, darkened as far as a white page needs."""
    return _until_seen(colour, LIGHT, -0.03)


def on_dark(colour: str) -> str:
    """The colour, lightened as far as a dark page needs."""
    return _until_seen(colour, DARK, 0.03)


def contrast(a: str, b: str) -> float:
    """The ratio of WCAG: from 1, the same, to 21, black on white."""
    low, high = sorted((_luminance(a), _luminance(b)))
    return (high + 0.05) / (low + 0.05)


def _until_seen(colour: str, on: str, step: float) -> str:
    hue, lightness, saturation = colorsys.rgb_to_hls(*_channels(colour))
    while contrast(colour, on) < CONTRAST and 0.0 < lightness + step < 1.0:
        lightness += step
        red, green, blue = colorsys.hls_to_rgb(hue, lightness, saturation)
        colour = f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"
    return colour


def _luminance(colour: str) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in _channels(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _channels(colour: str) -> tuple[float, float, float]:
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return red, green, blue
