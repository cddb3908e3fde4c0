"""Everything that a report of one run says, drawn up once. Text and JSON pull from here and derive nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from stallbook.abilities import NOT_RECORDED, Rough, unplaced
from stallbook.beyond import after_emission, delivered, exactness, tally_waits
from stallbook.counters import Counters, Speed, count, series, speed
from stallbook.errors import StallbookError
from stallbook.prompts import KINDS, prompts
from stallbook.report.summary import Delivered, FirstTokens, Percentiles, Readings, Summary, to_ms
from stallbook.stalls import Stalls, find_stalls
from stallbook.tally import Bin, Mix, Tally, tally, weighed
from stallbook.waits import BLOCKERS, Waits, blocked_by, boundary_gaps, first_tokens, held_by

if TYPE_CHECKING:
    from stallbook.partition import Partition

Boundary = Literal["engine", "frontend", "client"]

__all__ = ["Boundary", "Ceiling", "Reconciled", "RunReport", "build", "reports"]


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
    """One run, as reported.

    first: None under the rules of the post, which know no queue. beyond: the boundaries other than the one that the
    rest of the report is about. series: None where every gap ends with one token.
    """

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
    hidden_ms: float | None
    """Host work behind a busy device, in all gaps; None where the log has no device lane."""
    prompts_ms: dict[str, dict[str, float]] | None
    """Whose prompts the prefill in all gaps and in the tail's was; None where no owner is on record."""
    ceiling: dict[str, Ceiling]
    reconcile: Reconciled
    baseline: dict[str, Any]
    abilities: dict[str, str]
    rough: Rough
    unplaced: frozenset[str]
    """Causes whose part this log cannot tell: where they have none, that is unknown."""
    speed: Speed | None
    notes: dict[str, int]
    facts: Mapping[str, Any]
    warnings: list[str]
    stalls: Stalls
    first: FirstTokens | None
    beyond: dict[str, Delivered]
    series: Readings | None

    def __str__(self) -> str:
        """The report as plain text."""
        from stallbook.report.text import dumps

        return dumps([self])

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from stallbook.report.face import html

        return html(self)

    def as_dict(self) -> dict[str, Any]:
        """The report as the JSON document's object of one run."""
        from stallbook.report.jsonout import run_object

        return run_object(self)

    @property
    def beside(self) -> dict[str, Summary]:
        """What else was partitioned, by what one of it is called."""
        first = {"first token": self.first.waits} if self.first else {}
        return first | {f"{name} gap": told.gaps for name, told in self.beyond.items()}

    @property
    def exact(self) -> bool:
        """Whether all that was partitioned is the sum of its parts."""
        return self.reconcile.exact and all(one.exact for one in self.beside.values())

    @property
    def missing(self) -> list[str]:
        """Causes that this log cannot show."""
        return [cause for cause, ability in self.abilities.items() if ability == NOT_RECORDED]


def reports(partitions: Iterable[Partition], boundary: Boundary = "engine") -> Iterator[RunReport]:
    """One report a partition, one at a time, so that no two runs need be in memory at once."""
    return (build(partition, boundary) for partition in partitions)


def build(partition: Partition, boundary: Boundary = "engine") -> RunReport:
    """Draw up the report of one partition, on its gaps at `boundary`."""
    run = partition.run
    waits = _waits(partition, boundary)
    counted, table = count(run), tally(partition) if waits is None else tally_waits(waits)
    every = table.mix()
    return RunReport(
        path=run.path,
        engine=run.engine,
        boundary=run.boundary if waits is None else boundary,
        config=run.config,
        rules=partition.rules,
        causes=table.causes,
        gaps=every.gaps,
        counters=counted,
        itl=Percentiles.of(table.lengths),
        ttft=Percentiles.of(counted.ttft),
        tail_threshold_ms=to_ms(table.tail_ns),
        tail=table.tail(),
        all=every,
        forward_clean=_forward(partition, table, clean=True),
        forward_tail=_forward(partition, table, clean=False),
        histogram=table.histogram(),
        context_ms={cause: ns / 1e6 for cause, ns in table.context_ns.items()},
        hidden_ms=_hidden(partition),
        prompts_ms=_prompts(partition, table) if waits is None else None,
        ceiling=dict(_ceilings(table, every)),
        reconcile=_reconciled(partition, waits),
        baseline=_baseline(partition.baseline),
        abilities=dict(partition.abilities),
        rough=partition.rough,
        unplaced=unplaced(run, partition.abilities),
        speed=speed(run),
        notes={slug: n for slug, n in {**run.notes, **partition.notes}.items() if n},
        facts=run.facts,
        warnings=list(_warnings(partition)),
        stalls=find_stalls(partition, waits, boundary),
        first=_first(partition),
        beyond=dict(_beyond(partition, boundary)),
        series=_readings(partition, waits),
    )


def _hidden(p: Partition) -> float | None:
    seen = p.rules == "full" and bool((p.run.segments.device == 1).any())
    return int(weighed(p.row_weight, p.hidden)) / 1e6 if seen else None


def _prompts(p: Partition, table: Tally) -> dict[str, dict[str, float]] | None:
    if not (p.run.segments.request >= 0).any():
        return None
    of, tail = prompts(p), p.row_gap >= (table.tail_ns or 0)
    told = {
        name: {kind: int(weighed(weight, of[:, k])) / 1e6 for k, kind in enumerate(KINDS)}
        for name, weight in (("all", p.row_weight), ("tail", p.row_weight * tail))
    }
    return told if any(told["all"][kind] for kind in KINDS[:4]) else None


def _forward(p: Partition, table: Tally, *, clean: bool) -> float | None:
    """The median share of the forward pass; None where the log cannot show it."""
    known = p.abilities.get("fwd") != NOT_RECORDED
    return table.part_share("fwd", clean=clean).percentile(50) if known else None


def _waits(p: Partition, boundary: Boundary) -> Waits | None:
    """The gaps at a boundary beyond the engine; None at the engine."""
    if boundary == "engine":
        return None
    if p.rules != "full":
        what, remedy = "the rules of the post know the engine's gaps only", "leave --rules out, or ask for --rules full"
        raise StallbookError("no-boundary", what, remedy, p.run.path)
    if boundary not in (known := delivered(p)):
        remedy = f"choose one of: engine, {', '.join(known)}" if known else "leave --boundary out"
        raise StallbookError("no-boundary", f"has no deliveries at the {boundary}", remedy, p.run.path)
    return boundary_gaps(p, boundary)


def _first(p: Partition) -> FirstTokens | None:
    if p.rules == "post":
        return None
    waits = first_tokens(p)
    ns = blocked_by(p.run)
    blocked = None if ns is None else {name: int(n) / 1e6 for name, n in zip(BLOCKERS, ns, strict=True)}
    return FirstTokens(Summary.of(tally_waits(waits), exactness(waits)), waits.never_admitted, blocked, _held(p))


def _held(p: Partition) -> dict[str, float]:
    """The share of the time in the queue in which each kind of hold kept a request."""
    total, held = held_by(p.run)
    return {kind: ns / total for kind, ns in held.items()} if total else {}


def _beyond(p: Partition, boundary: Boundary) -> Iterator[tuple[str, Delivered]]:
    """The gaps at every other boundary that the log knows."""
    if boundary != "engine":
        checked = (int(p.reconcile.max_error_ns), int(p.reconcile.negative_parts))
        yield "engine", Delivered(Summary.of(tally(p), checked), None, 0, 0)
    for other in delivered(p):
        if other != boundary:
            waits = boundary_gaps(p, other)
            summary = Summary.of(tally_waits(waits), exactness(waits))
            yield other, Delivered(summary, after_emission(waits), waits.unmatched, _empty(p))


def _empty(p: Partition) -> int:
    return int(p.run.notes.get("empty_deliveries", 0))


def _readings(p: Partition, waits: Waits | None) -> Readings | None:
    tokens = p.run.emissions.tokens if waits is None else waits.tokens
    if tokens.max(initial=1) <= 1:
        return None
    told = series(p.gaps.t1 - p.gaps.t0, p.gaps.tokens) if waits is None else series(waits.t1 - waits.t0, waits.tokens)
    if not told.several:
        return None
    return Readings(told.several, Percentiles.of(told.zero_filled), Percentiles.of(told.divided))


def _ceilings(table: Tally, every: Mix) -> Iterator[tuple[str, Ceiling]]:
    for cause, ns in every.time_ns.items():
        if ns:
            left = table.without(cause)
            yield cause, Ceiling(to_ms(left.percentile(99)), to_ms(left.percentile(99.9)))


def _warnings(partition: Partition) -> Iterator[str]:
    """What makes `slow` and `graph` less certain than they look."""
    run = partition.run
    causes = [c for c in ("slow", "graph") if c in partition.causes and partition.abilities.get(c) != NOT_RECORDED]
    if partition.rules == "post" or not causes:
        return
    missing = [
        name
        for name, known in (
            ("no OS counters", "os" not in unplaced(run, partition.abilities)),
            ("no KV token counts", bool((run.steps.kv_tokens >= 0).any())),
        )
        if not known
    ]
    if missing:
        them = "these" if len(causes) > 1 else "it"
        yield f"{', '.join(causes)}: with {' and '.join(missing)}, contention and long contexts can read as {them}."


def _reconciled(partition: Partition, waits: Waits | None) -> Reconciled:
    checked, notes = partition.reconcile, {**partition.run.notes, **partition.notes}
    error, negative = (checked.max_error_ns, checked.negative_parts) if waits is None else exactness(waits)
    return Reconciled(
        max_error_ns=int(error),
        negative_parts=int(negative),
        skipped_steps_unexplained=int(checked.skipped_steps_unexplained),
        gaps_skipping=int(checked.gaps_skipping),
        merged_pauses=notes.get("merged_pauses", 0),
        merged_evictions=notes.get("merged_evictions", 0),
    )


def _baseline(fit: object) -> dict[str, Any]:
    """The fit's plain fields, numbers and words only: new ones are reported without a change here."""
    fields = {name: getattr(fit, name) for name in getattr(fit, "__dataclass_fields__", {})}
    return {name: value for name, value in fields.items() if isinstance(value, (str, int, float, type(None)))}
