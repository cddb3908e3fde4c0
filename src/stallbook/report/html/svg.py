"""Charts as SVG that stands in a page: without what a page does not need, each mark with what it says of itself."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import Any, Final

from stallbook.report.html.look import TIP

__all__ = ["inline"]

_DROPPED: Final = (
    "class",
    "role",
    "aria-roledescription",
    "aria-hidden",
    "aria-label",
    "pointer-events",
    "font-family",
)
_NOTHING: Final = re.compile(r"M0,0h0v0h0Z|")
_LONG: Final = re.compile(r"\d+\.\d{3,}")


def inline(svg: str, label: str) -> str:
    """The chart as one picture called `label`, without namespaces."""
    root = ET.fromstring(svg)
    width, height = root.get("width", "0"), root.get("height", "0")
    for parent in root.iter():
        parent.tag = parent.tag.rpartition("}")[2]
        for child in list(parent):
            if _empty(child):
                parent.remove(child)
        _clean(parent)
    _flatten(root)
    root.attrib.clear()
    root.attrib |= {
        "viewBox": f"0 0 {width} {height}", "width": width, "height": height, "role": "img", "aria-label": label,
    }  # fmt: skip
    return ET.tostring(root, encoding="unicode")


def _empty(e: ET.Element) -> bool:
    """Paths that draw nothing: what a chart library leaves for its own use."""
    path = e.tag.endswith("path") and (_NOTHING.fullmatch(e.get("d", "")) is not None or e.get("display") == "none")
    return path or (e.tag.endswith("path") and "background" in e.get("class", "") and not _painted(e))


def _painted(e: ET.Element) -> bool:
    return any(e.get(name, "none") not in ("none", "transparent") for name in ("fill", "stroke"))


def _clean(e: ET.Element) -> None:
    told = e.get("aria-label", "")
    for name in _DROPPED:
        e.attrib.pop(name, None)
    if told.startswith(TIP):
        e.set("data-tip", told.removeprefix(TIP))
    for name, plain in (("opacity", "1"), ("stroke-miterlimit", "10")):
        if e.get(name) == plain:
            del e.attrib[name]
    for name in ("d", "transform"):
        if name in e.attrib:
            e.set(name, _LONG.sub(lambda m: f"{float(m[0]):.2f}".rstrip("0").rstrip("."), e.attrib[name]))


def _flatten(e: Any) -> None:
    """Groups that hold nothing go, and of a group alone in a group that says nothing one stays."""
    for child in list(e):
        _flatten(child)
    for child in list(e):
        if child.tag == "g" and not len(child):
            e.remove(child)
        elif child.tag == "g" and len(child) == 1 and not child.attrib:
            e[list(e).index(child)] = child[0]
