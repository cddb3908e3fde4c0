"""What of an engine's configuration explains its log: the settings that advice names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

__all__ = ["settings"]

_MOST: Final = 1024
"""Entries of a list that are kept."""
_NONE: Final = object()


def settings(config: Any, wanted: Mapping[str, Iterable[str]]) -> dict[str, Any]:
    """The attributes of `config`'s parts, `wanted[part]` naming them; the part "" is `config` itself.

    One that is not there is left out, for its value is not known. What a manifest cannot hold is kept as text.
    """
    found = {}
    for part, names in wanted.items():
        holder = getattr(config, part, None) if part else config
        for name in names:
            value = getattr(holder, name, _NONE) if holder is not None else _NONE
            if value is not _NONE:
                found[name.lstrip("_")] = _plain(value)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, (bool, int, float, str, type(None))):
        return value
    if (
        isinstance(value, (list, tuple))
        and len(value) <= _MOST
        and all(type(one) in (int, float, str) for one in value)
    ):
        return list(value)
    return str(value)
