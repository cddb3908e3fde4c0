"""The study of the sixth pile in tables of 80 columns and as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from stallbook.digits import percent, short
from stallbook.study.bent import Bent
from stallbook.study.layout import Cell, Table, as_text, wrapped
from stallbook.study.pile import FAR, Charged, Pile
from stallbook.tally import Distribution

__all__ = ["Result", "as_json", "to_text"]

PERCENTILES: Final = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99.9": 99.9}


@dataclass(frozen=True)
class Result:
    """One configuration, all its runs together. judged: which of its steps, and against what. quiet: the same runs'
    steps while the neighbours slept, where there are any.

    speed_ns: the median probe. stolen: what the hypervisor took, as a fraction of the machine's time.
    """

    name: str
    judged: str
    runs: int
    gaps: Distribution
    time: Charged
    pile: Pile
    quiet: Pile | None
    speed_ns: float | None
    stolen: float | None

    @property
    def beyond(self) -> float | None:
        """The share of `os` in the excess beyond what quiet steps scatter."""
        scatter = self.quiet.scatter if self.quiet else None
        return None if scatter is None else self.pile.beyond(scatter)

    def itl_ms(self) -> dict[str, float | None]:
        """Percentiles and the longest gap."""
        ns = {key: self.gaps.percentile(q) for key, q in PERCENTILES.items()} | {"max": self.gaps.max}
        return {key: None if value is None else value / 1e6 for key, value in ns.items()}


def as_json(results: Sequence[Result], bent: Bent | None, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that the tables show, and the sums behind it."""
    told = [
        {
            "name": r.name, "judged": r.judged, "runs": r.runs, "gaps": r.gaps.count, "itl_ms": r.itl_ms(),
            "gap_time": asdict(r.time) | {"os_and_slow": r.time.share},
            "decode": asdict(r.pile) | {"rest_ns": r.pile.rest_ns, "os": r.pile.os_share, "far_os": r.pile.far_share},
            "quiet": asdict(r.quiet) | {"scatter": r.quiet.scatter} if r.quiet else None, "os_beyond": r.beyond,
            "probe_ns": r.speed_ns, "stolen": r.stolen,
        }
        for r in results
    ]  # fmt: skip
    return {"stallbook_sixth_pile": 1, **facts, "configurations": told, "baselines": asdict(bent) if bent else None}


def to_text(told: Mapping[str, Any]) -> str:
    """The tables of what `as_json` gave."""
    machine = told["machine"]
    head = (
        f"{machine['cpu']}, {machine['cores']} cores; {told['seconds']:g} s of {told['rate']:g} requests/s, seeds "
        f"{', '.join(map(str, told['seeds']))}; {told['started']}"
    )
    tables = [_gaps(told["configurations"]), _excess(told["configurations"]), _far(told["configurations"])]
    text = "\n".join([wrapped(head), "", *map(as_text, tables)])
    return text + "\n" + _baselines(told["baselines"]) if told["baselines"] else text


def _gaps(found: Sequence[Mapping[str, Any]]) -> Table:
    rows = []
    for one in found:
        times = [Cell(short(one["itl_ms"][key])) for key in (*PERCENTILES, "max")]
        probe = "-" if one["probe_ns"] is None else f"{one['probe_ns'] / 1000:.0f}"
        more = [percent(one["gap_time"]["os_and_slow"]), probe, percent(one["stolen"])]
        rows.append((one["name"], [*times, *map(Cell, more)]))
    note = (
        "os+slow: what both hold of all gap time. probe: median us of a fixed small product, the machine's speed. "
        "stolen: what the hypervisor took of all cores' time, by /proc/stat."
    )
    columns = (*PERCENTILES, "max", "os+slow", "probe", "stolen")
    return Table("gaps", "Gaps between tokens, ms", "", columns, rows, (note,))


def _excess(found: Sequence[Mapping[str, Any]]) -> Table:
    rows = []
    for one in found:
        d = one["decode"]
        parts = [d[key] for key in ("os_ns", "slow_ns", "rest_ns")]
        shares = [percent(part / d["excess_ns"] if d["excess_ns"] else None) for part in parts]
        scatter = one["quiet"]["scatter"] if one["quiet"] else None
        times = [_seconds(d[key]) for key in ("usual_ns", "excess_ns")]
        figures = [f"{d['steps']:,}", *times, *shares, percent(scatter), percent(one["os_beyond"])]
        rows.append((one["name"], [Cell(x) for x in figures]))
    columns = ("steps", "usual", "excess", "os", "slow", "rest", "scatter", "beyond")
    note = (
        "usual, excess: s of the steps' baselines, and above them where positive. os, slow, rest: "
        "shares of the excess. scatter: the excess of the same runs' steps while the neighbours slept, as a share of "
        "their baselines; beyond: the share of os in what exceeds that."
    )
    judged = "; ".join(f"{one['name']}: {one['judged']}" for one in found)
    title = "Decode steps above their uncontended baseline"
    return Table("excess", title, "", columns, rows, (note, f"Judged: {judged}."))


def _far(found: Sequence[Mapping[str, Any]]) -> Table:
    rows = []
    for one in found:
        d = one["decode"]
        mean = d["far_host_ns"] / d["far_steps"] / 1e6 if d["far_steps"] else None
        times = [short(mean), _seconds(d["far_excess_ns"])]
        figures = [f"{d['far_steps']:,}", f"{d['far_gaps']:,}", *times, percent(d["far_os"])]
        rows.append((one["name"], [Cell(x) for x in figures]))
    columns = ("steps", "gaps", "ms a step", "excess s", "os")
    return Table("far", f"The pile: decode steps of {FAR} times their baseline or more", "", columns, rows)


def _baselines(told: Mapping[str, Any]) -> str:
    rows, shown = [], told["sizes"]
    for one in told["fits"]:
        at = [Cell(short(ns / 1e6)) for ns in one["at_ns"]]
        cells = [*at, Cell(_seconds(one["graph_ns"])), Cell(_seconds(one["wrong_ns"]))]
        rows.append((one["name"], cells))
    title = f"Baselines on one log with a busy neighbour: B(n), ms, at {told['kv_per_row']} KV tokens a row"
    eager, waited = (_seconds(told[key]) for key in ("eager_ns", "os_ns"))
    note = (
        f"{told['eager_steps']:,} steps ran above every captured size: {eager} s of decode. graph: s charged to it; "
        "wrong: its difference to the first line, step by step, summed. In all decode segments threads waited "
        f"{waited} s for a core."
    )
    table = Table("baselines", title, "", (*map(str, shown), "graph", "wrong"), rows, (note,))
    told_fits = [wrapped(f"{one['name']}: {_formula(one)}") for one in told["fits"]]
    return "\n".join([as_text(table), *told_fits]) + "\n"


def _formula(one: Mapping[str, Any]) -> str:
    kv = f" + {one['kv_token_ns']:.0f} ns a KV token" if one["kv_token_ns"] else ""
    return f"{one['fixed_ns'] / 1e6:.2f} ms + {one['row_ns'] / 1e3:.0f} us a row{kv} ({one['method']})"


def _seconds(ns: float) -> str:
    return short(ns / 1e9)
