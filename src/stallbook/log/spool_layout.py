"""How the parts of a step lie in a spool, as NumPy reads many at once."""

from __future__ import annotations

import struct
from typing import Final

import numpy as np

from stallbook.record import spool as f

__all__ = ["COLUMNS", "DELAY", "END", "HEAD", "LAYOUT", "WINDOW", "Steps"]

LAYOUT: Final = {kind: struct.Struct("<" + layout) for kind, layout in f.BODIES.items()}
_TYPES: Final = {"I": "<u4", "i": "<i4", "q": "<i8", "B": "u1", "H": "<u2", "h": "<i2"}


def _fields(codes: str, names: list[str]) -> np.dtype[np.void]:
    return np.dtype([(name, _TYPES[code]) for name, code in zip(names, codes, strict=False)])


COLUMNS: Final = ["marks", "graph", "flags", "t0", "step", "dt", "emit", "prefill", "kv", "padded", "decode"]
HEAD: Final = {kind: _fields(codes, COLUMNS) for kind, codes in f.BODIES.items()}
DELAY: Final = {kind: np.dtype(_TYPES[code]) if code else None for kind, code in f.DELAYS.items()}
END: Final = {kind: _fields(f.ENDS[kind], ["cpu", "delay"]) for kind in f.BODIES}
WINDOW: Final = np.dtype(
    [("name", "<u2"), ("device", "<u2"), ("request", "<i4"), ("t0", "<i8"), ("t1", "<i8"), ("delay", "<i8")]
)


class Steps:
    """The steps of one layout, as bytes to be read as arrays."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.heads: list[memoryview] = []
        self.times: list[memoryview] = []
        self.delays: list[memoryview] = []
        self.ends: list[memoryview] = []
        self.names: list[memoryview] = []
