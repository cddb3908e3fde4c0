"""Every gap of a partition as a table: Parquet (streamed in row groups), CSV or JSON Lines by the file's suffix."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from stallbook.abilities import unplaced
from stallbook.causes import CLEAN, ORDER, POST, ordered
from stallbook.errors import StallbookError

if TYPE_CHECKING:
    from stallbook.partition import Partition
    from stallbook.run import Ints

__all__ = ["FORMATS", "ROW_GROUP", "check_format", "columns", "to_arrow", "write"]

ROW_GROUP: Final = 1 << 17
"""Gaps written at a time: what bounds the memory of an export."""

Block = dict[str, npt.NDArray[Any]]


def columns(partition: Partition) -> list[str]:
    """Names of the columns, in order: the same for every run under the same rules, but for `other:NAME`."""
    parts = [f"{cause}_ns" for cause in _causes(partition)]
    context = [f"context_{cause}_ns" for cause in _causes(partition)]
    return ["request", "step", "t0_ns", "t1_ns", "gap_ns", "tokens", "primary", *parts, *context]


def check_format(path: Path) -> None:
    """Refuse a suffix that no writer has, or whose library is missing, before any work is done."""
    if path.suffix not in FORMATS:
        raise StallbookError(
            "unknown-format",
            f"no table format is called {path.suffix!r}",
            f"end the name in {', '.join(FORMATS)}",
            str(path),
        )
    if path.suffix == ".parquet":
        _pyarrow()


def write(partition: Partition, path: Path, suffix: str | None = None) -> int:
    """Write every gap to `path` in the format of `suffix` (its own, if none is given); return how many there were."""
    FORMATS[path.suffix if suffix is None else suffix](partition, path)
    return len(partition.row_of_gap)


def to_arrow(partition: Partition) -> Any:
    """Every gap as one `pyarrow.Table`."""
    pa = _pyarrow()
    return pa.Table.from_batches(_batches(partition, pa), schema=_schema(partition, pa))


def _causes(partition: Partition) -> tuple[str, ...]:
    return ordered([*(POST if partition.rules == "post" else ORDER), *partition.causes])


def _amounts(partition: Partition, table: Ints, row: Ints, prefix: str) -> Block:
    """A column a cause. One that occurs nowhere is 0 all the way; one that the log cannot place is None."""
    out: Block = {}
    unknown = unplaced(partition.run, partition.abilities)
    seen = {cause for k, cause in enumerate(partition.causes) if table[:, k].any()}
    for cause in _causes(partition):
        if cause in seen:
            out[f"{prefix}{cause}_ns"] = table[row, partition.causes.index(cause)]
        elif cause in unknown:
            out[f"{prefix}{cause}_ns"] = np.full(len(row), None)
        else:
            out[f"{prefix}{cause}_ns"] = np.zeros(len(row), np.int64)
    return out


def _blocks(partition: Partition) -> Iterator[Block]:
    """The table a slice of gaps at a time; `request` and `primary` are still indices."""
    gaps = partition.gaps
    steps = partition.run.steps.id
    for start in range(0, len(partition.row_of_gap), ROW_GROUP):
        at = slice(start, start + ROW_GROUP)
        row = partition.row_of_gap[at]
        block: Block = {
            "request": gaps.request[at],
            "step": steps[gaps.step_to[at]],
            "t0_ns": gaps.t0[at],
            "t1_ns": gaps.t1[at],
            "gap_ns": partition.row_gap[row],
            "tokens": gaps.tokens[at],
            "primary": partition.row_primary[row],
        }
        block |= _amounts(partition, partition.rows, row, "")
        block |= _amounts(partition, partition.context, row, "context_")
        yield block


def _labels(partition: Partition) -> list[str]:
    """What `primary` counts through: clean is -1, so it comes last."""
    return [*partition.causes, CLEAN]


def _schema(partition: Partition, pa: Any) -> Any:
    words = pa.dictionary(pa.int32(), pa.string())
    fields = [(name, words if name in ("request", "primary") else pa.int64()) for name in columns(partition)]
    about = {"stallbook": "1", "rules": partition.rules, "boundary": partition.run.boundary}
    return pa.schema(fields, metadata=about)


def _batches(partition: Partition, pa: Any) -> Iterator[Any]:
    schema = _schema(partition, pa)
    words = {"request": pa.array(partition.run.requests.names, pa.string()), "primary": pa.array(_labels(partition))}
    for block in _blocks(partition):
        block["primary"] = block["primary"] % len(_labels(partition))
        arrays = [
            pa.DictionaryArray.from_arrays(pa.array(values.astype(np.int32)), words[name])
            if name in words
            else pa.array(np.ascontiguousarray(values), pa.int64())
            for name, values in block.items()
        ]
        yield pa.record_batch(arrays, schema=schema)


def _parquet(partition: Partition, path: Path) -> None:
    pa = _pyarrow()
    import pyarrow.parquet as pq

    # Opened here: Arrow takes no name that is not UTF-8.
    with path.open("wb") as file, pq.ParquetWriter(file, _schema(partition, pa), compression="zstd") as writer:
        for batch in _batches(partition, pa):
            writer.write_batch(batch, row_group_size=ROW_GROUP)


def _rows(partition: Partition) -> Iterator[tuple[Any, ...]]:
    names, labels = partition.run.requests.names, _labels(partition)
    for block in _blocks(partition):
        lists: list[list[Any]] = [values.tolist() for values in block.values()]
        order = list(block)
        for name, words in (("request", names), ("primary", labels)):
            lists[order.index(name)] = [words[i] for i in block[name].tolist()]
        yield from zip(*lists, strict=True)


def _csv(partition: Partition, path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns(partition))
        writer.writerows(_rows(partition))


def _jsonl(partition: Partition, path: Path) -> None:
    names = columns(partition)
    with path.open("w", encoding="utf-8") as file:
        for row in _rows(partition):
            file.write(json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) + "\n")


def _pyarrow() -> Any:
    try:
        import pyarrow as pa
    except ImportError as error:
        raise StallbookError(
            "missing-extra",
            "Parquet needs PyArrow, which is not installed",
            "pip install 'stallbook[parquet]', or write .csv or .jsonl",
        ) from error
    return pa


FORMATS: Final[dict[str, Callable[[Partition, Path], None]]] = {".parquet": _parquet, ".csv": _csv, ".jsonl": _jsonl}
"""Writers by suffix."""
