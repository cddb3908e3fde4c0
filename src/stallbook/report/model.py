"""Everything that a report of one run says, drawn up once. Text and JSON pull from here and derive nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stallbook.counters import Counters, Speed, count, speed
from stallbook.tally import Bin, Distribution, Mix, Tally, tally

if TYPE_CHECKING:
    from stallbook.partition import Partition

__all__ = ["Ceiling", "Percentiles", "Reconciled", "RunReport", "build", "reports"]

NOT_RECORDED = "not recorded"


@dataclass(frozen=True)
class Percentiles:
    """In ms; None where there is nothing to rank."""

    p50: float | None
    p90: float | None
    p99: float | None
    p999: float | None
    max: float | None

    @classmethod
    def of(cls, ns: Distribution) -> Percentiles:
        """Of a distribution of nanoseconds."""
        p50, p90, p99, p999 = (_ms(ns.percentile(q)) for q in (50, 90, 99, 99.9))
        return cls(p50, p90, p99, p999, _ms(ns.max))


@dataclass(frozen=True)
class Ceiling:
    """The percentiles in ms had one cause cost nothing and all else stayed as it was."""

    p99: float | None
    p999: float | None


@dataclass(frozen=True)
class Reconciled:
    """Whether the parts of every gap add up to it, and what was merged before."""

    max_error_ns: int
    negative_parts: int
    skipped_steps_unexplained: int
    gaps_skipping: int
    merged_pauses: int
    merged_evictions: int

    @property
    def exact(self) -> bool:
        """Whether every gap is the sum of its parts and none is negative."""
        return self.max_error_ns == 0 and self.negative_parts == 0


@dataclass(frozen=True)
class RunReport:
    """One run, as reported."""

    path: str
    engine: str
    boundary: str
    config: Mapping[str, Any]
    rules: str
    causes: tuple[str, ...]
    gaps: int
    counters: Counters
    itl: Percentiles
    ttft: Percentiles
    tail_threshold_ms: float | None
    tail: Mix
    all: Mix
    forward_clean: float | None
    forward_tail: float | None
    histogram: list[Bin]
    context_ms: dict[str, float]
    ceiling: dict[str, Ceiling]
    reconcile: Reconciled
    baseline: dict[str, Any]
    abilities: dict[str, str]
    speed: Speed | None
    notes: dict[str, int]
    facts: Mapping[str, Any]

    warnings: list[str]

    def __str__(self) -> str:
        """The report as plain text."""
        from stallbook.report.text import dumps

        return dumps([self])

    def as_dict(self) -> dict[str, Any]:
        """The report as the JSON document's object of one run."""
        from stallbook.report.jsonout import run_object

        return run_object(self)

    @property
    def missing(self) -> list[str]:
        """Causes that this log cannot show."""
        return [cause for cause, ability in self.abilities.items() if ability == NOT_RECORDED]


def reports(partitions: Iterable[Partition]) -> Iterator[RunReport]:
    """One report a partition, one at a time, so that no two runs need be in memory at once."""
    return (build(partition) for partition in partitions)


def build(partition: Partition) -> RunReport:
    """Draw up the report of one partition."""
    run = partition.run
    counted, table = count(run), tally(partition)
    every = table.mix()
    return RunReport(
        path=run.path,
        engine=run.engine,
        boundary=run.boundary,
        config=run.config,
        rules=partition.rules,
        causes=table.causes,
        gaps=every.gaps,
        counters=counted,
        itl=Percentiles.of(table.lengths),
        ttft=Percentiles.of(counted.ttft),
        tail_threshold_ms=_ms(table.tail_ns),
        tail=table.tail(),
        all=every,
        forward_clean=table.part_share("fwd", clean=True).percentile(50),
        forward_tail=table.part_share("fwd", clean=False).percentile(50),
        histogram=table.histogram(),
        context_ms={cause: ns / 1e6 for cause, ns in table.context_ns.items()},
        ceiling=dict(_ceilings(table, every)),
        reconcile=_reconciled(partition),
        baseline=_baseline(partition.baseline),
        abilities=dict(partition.abilities),
        speed=speed(run),
        notes={slug: n for slug, n in {**run.notes, **partition.notes}.items() if n},
        facts=run.facts,
        warnings=list(_warnings(partition)),
    )


def _ceilings(table: Tally, every: Mix) -> Iterator[tuple[str, Ceiling]]:
    for cause, ns in every.time_ns.items():
        if ns:
            left = table.without(cause)
            yield cause, Ceiling(_ms(left.percentile(99)), _ms(left.percentile(99.9)))


def _warnings(partition: Partition) -> Iterator[str]:
    """What makes `slow` and `graph` less certain than they look."""
    run = partition.run
    if partition.rules == "post" or not {"slow", "graph"} & set(partition.causes):
        return
    missing = [
        name
        for name, known in (
            ("no OS counters", partition.abilities.get("os") != NOT_RECORDED),
            ("no KV token counts", bool((run.steps.kv_tokens >= 0).any())),
        )
        if not known
    ]
    if missing:
        yield f"slow, graph: with {' and '.join(missing)}, contention and long contexts can read as these."


def _reconciled(partition: Partition) -> Reconciled:
    checked, notes = partition.reconcile, {**partition.run.notes, **partition.notes}
    return Reconciled(
        max_error_ns=int(checked.max_error_ns),
        negative_parts=int(checked.negative_parts),
        skipped_steps_unexplained=int(checked.skipped_steps_unexplained),
        gaps_skipping=int(checked.gaps_skipping),
        merged_pauses=notes.get("merged_pauses", 0),
        merged_evictions=notes.get("merged_evictions", 0),
    )


def _baseline(fit: object) -> dict[str, Any]:
    """The fit's plain fields, numbers and words only: new ones are reported without a change here."""
    fields = {name: getattr(fit, name) for name in getattr(fit, "__dataclass_fields__", {})}
    return {name: value for name, value in fields.items() if isinstance(value, (str, int, float, type(None)))}


def _ms(ns: float | None) -> float | None:
    return None if ns is None else ns / 1e6
