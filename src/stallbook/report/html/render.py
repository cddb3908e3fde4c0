"""Draw charts with Vega-Lite, in this process and offline."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from stallbook.errors import StallbookError
from stallbook.report.html.look import Chart

__all__ = ["needed", "png", "svg"]

VEGA_LITE: Final = "6.1"
"""The version of the language that the charts are written in."""


def needed() -> None:
    """Say what is missing, before any work is done."""
    for module, name in (("vl_convert", "vl-convert"), ("jinja2", "Jinja")):
        try:
            import_module(module)
        except ImportError as error:
            what = f"a report with charts needs {name}, which is not installed"
            raise StallbookError(
                "missing-extra", what, "pip install 'stallbook[report]', or leave --format out"
            ) from error


def svg(chart: Chart) -> str:
    """A chart as SVG."""
    import vl_convert

    return vl_convert.vegalite_to_svg(chart, vl_version=VEGA_LITE)


def png(chart: Chart, scale: float) -> bytes:
    """A chart as PNG, `scale` pixels to each of its own."""
    import vl_convert

    return vl_convert.vegalite_to_png(chart, vl_version=VEGA_LITE, scale=scale)
