"""The tables of a run as Arrow, and Arrow as pandas or Polars: for notebooks. Each library is loaded when asked for.

Indices become what they point to: requests their ids, steps their ids, names their words. What was not recorded is
null, and so is the end of what never ended. Times are in ns of the log's clock and end in `_ns`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from stallbook.errors import StallbookError

if TYPE_CHECKING:
    from stallbook.run import Ints, Run

__all__ = ["TABLES", "run_table", "to_pandas", "to_polars"]

TABLES: Final = (
    "requests", "steps", "segments", "pauses", "emissions", "evictions", "holds", "deliveries", "members", "probes",
)  # fmt: skip

_UNKNOWN, _NEVER = -(2**63), 2**62
_TIMES: Final = frozenset({"arrive", "admit", "finish", "t0", "t1", "t", "emit"})
_LENGTHS: Final = frozenset({"run_delay", "cpu"})
_WORDS: Final = {
    "graph": ("none", "captured", "eager"),
    "blocked": ("nothing", "kv", "seqs", "budget"),
    "boundary": ("frontend", "client"),
}


def run_table(run: Run, name: str) -> Any:
    """One of `TABLES` as a `pyarrow.Table`."""
    if name not in TABLES:
        raise StallbookError("unknown-table", f"a run has no table {name!r:.60}", f"one of {', '.join(TABLES)}")
    pa = _library("pyarrow")
    if name == "members":
        owner = np.repeat(np.arange(len(run.steps.id)), np.diff(run.members.start))
        columns = {"step": owner, "request": run.members.request}
    else:
        columns = {k: v for k, v in vars(getattr(run, name)).items() if k != "names"}
    out = {"request": pa.array(run.requests.names, pa.string())} if name == "requests" else {}
    for column, values in columns.items():
        out |= _column(pa, run, name, column, values)
    return pa.table(out)


def to_pandas(table: Any) -> Any:
    """An Arrow table as a pandas DataFrame whose whole numbers stay exact where some are null."""
    pd, pa = _library("pandas"), _library("pyarrow")
    return table.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)


def to_polars(table: Any) -> Any:
    """An Arrow table as a Polars DataFrame."""
    return _library("polars").from_arrow(table)


def _column(pa: Any, run: Run, table: str, name: str, values: Ints) -> dict[str, Any]:
    """A column by the name that it has outside."""
    if name in _TIMES:
        return {f"{name}_ns": pa.array(values, pa.int64(), mask=(values == _UNKNOWN) | (values >= _NEVER))}
    if name in _LENGTHS:
        return {f"{name}_ns": pa.array(values, pa.int64(), mask=values < 0)}
    if name == "request":
        return {name: _words(pa, values, run.requests.names)}
    if name == "step":
        return {name: pa.array(run.steps.id[values], pa.int64())}
    if name in ("name", "kind", "process"):
        return {name: _words(pa, values, run.names)}
    if name in _WORDS:
        return {name: _words(pa, values, _WORDS[name])}
    if name == "device":
        return {name: pa.array(values == 1)}
    if name in ("id", "ns"):
        return {"step" if (table, name) == ("steps", "id") else name: pa.array(values, pa.int64())}
    return {name: pa.array(values, pa.int64(), mask=values < 0)}


def _words(pa: Any, values: Ints, words: tuple[str, ...]) -> Any:
    index = pa.array(values.astype(np.int32), pa.int32(), mask=values < 0)
    return pa.DictionaryArray.from_arrays(index, pa.array(words, pa.string()))


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise StallbookError(
            "missing-extra", f"this needs {name}, which is not installed", "pip install 'stallbook[notebook]'"
        ) from error
