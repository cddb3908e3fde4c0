"""Checks on one recording: what it holds against what the engine counted, and whether all of it adds up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from stallbook.beyond import delivered, exactness
from stallbook.conformance.engine import Answer, Ask, Counted, Limits
from stallbook.counters import count
from stallbook.digits import percent
from stallbook.errors import StallbookError
from stallbook.intervals import union
from stallbook.log import open as open_log
from stallbook.partition import Partition, partition
from stallbook.run import UNKNOWN, Run
from stallbook.waits import boundary_gaps, first_tokens

__all__ = [
    "Evidence", "account", "allowed_ns", "answered", "behind_ns", "busy_ns", "equal", "exact", "explained", "own_words",
    "read", "tokens",
]  # fmt: skip

FAILED: Final = "stallbook: a hook failed"
"""How the hooks begin what they say of their first error."""

_UNREAD: Final = (
    "untold_notes", "unknown_handles", "unknown_records", "refused_values", "refused_steps", "unfinished_steps",
    "cut_bytes", "corrupt_bytes", "stray_readmits", "endless_evictions", "repeated_holds", "releases_of_nothing",
)  # fmt: skip
"""What a log's reader could not use, or had to mend because a record is missing. The rest of its notes is natural:
pauses that overlap, tokens that were in flight as a request was evicted, the torn end of a process that was killed."""

_LATE_NS, _LATE_STEPS = 2_000_000_000, 10
"""How late a token may be in the log: adapters promise half a second, on a machine that keeps up with its steps."""

Check = tuple[str, bool | None, str]
"""Name, whether it holds, what was seen."""


@dataclass(frozen=True)
class Evidence:
    """The logs of one engine's life; a data-parallel server writes several."""

    runs: tuple[Run, ...]
    partitions: tuple[Partition, ...]

    @property
    def tokens(self) -> int:
        """Tokens that were emitted."""
        return sum(int(run.emissions.tokens.sum()) for run in self.runs)

    @property
    def preemptions(self) -> int:
        """Times a running request lost its cache."""
        return sum(count(run).preemptions or 0 for run in self.runs)

    @property
    def gaps(self) -> int:
        """How many there are."""
        return sum(len(p.gaps) for p in self.partitions)


def _runs(log: Path) -> tuple[Run, ...]:
    return tuple(open_log(path) for path in sorted(log.parent.glob(f"*{log.suffix}")) if path.is_dir())


def tokens(log: Path) -> int:
    """How many the logs that lie where `log` does hold so far."""
    return sum(int(run.emissions.tokens.sum()) for run in _runs(log))


def read(log: Path) -> Evidence:
    """All logs that lie where `log` does."""
    runs = _runs(log)
    if not runs:
        raise StallbookError("no-such-run", "there is no log", "start the engine with its adapter", str(log))
    return Evidence(runs, tuple(partition(run) for run in runs))


def behind_ns(e: Evidence, seen: int, at: int) -> int:
    """Of a log that held `seen` tokens at `at`: how long the first of those that it holds now was out by then."""
    stamps = np.concatenate([run.steps.emit[run.emissions.step] for run in e.runs])
    counts = np.concatenate([run.emissions.tokens for run in e.runs])
    order = np.argsort(stamps, kind="stable")
    row = int(np.searchsorted(np.cumsum(counts[order]), seen, "right"))
    return max(at - int(stamps[order[row]]), 0) if row < len(order) else 0


def allowed_ns(e: Evidence) -> int:
    """How late a token may be in the log: a time, and some of this machine's usual steps."""
    steps = np.concatenate([(run.steps.t1 - run.steps.t0)[run.steps.emit != UNKNOWN] for run in e.runs])
    return _LATE_NS + _LATE_STEPS * (int(np.median(steps)) if len(steps) else 0)


def answered(asks: Sequence[Ask], answers: Sequence[Answer]) -> Check:
    """Everyone got all that was asked for."""
    wrong = [one for one in answers if one.error]
    wanted, got = sum(one.max_tokens for one in asks), sum(one.tokens for one in answers)
    said = f"{len(answers) - len(wrong):,} of {len(asks):,} requests, {got:,} of {wanted:,} tokens"
    if wrong:
        said += f"; {wrong[0].name}: {wrong[0].error[:200]}"
    return "every request is answered", not wrong and len(answers) == len(asks) and got == wanted, said


def equal(e: Evidence, asks: Sequence[Ask], answers: Sequence[Answer], own: Counted) -> Iterator[Check]:
    """The log's counts are the engine's own, and those of the ones who asked."""
    if own.preemptions is None:
        yield "preemptions", None, f"recorded {e.preemptions:,}; the engine counts none"
    else:
        said = f"recorded {e.preemptions:,}, the engine's own {own.preemptions:,}"
        forced = own.preemptions > 0
        held = e.preemptions == own.preemptions and forced
        yield "preemptions", held, said if forced else f"{said}: the script must force some"
    got = sum(one.tokens for one in answers)
    said = f"recorded {e.tokens:,}, answered {got:,}"
    if own.tokens is not None:
        said += f", the engine's own {own.tokens:,}"
    yield "tokens", e.tokens == got and own.tokens in (None, e.tokens), said
    names = sum(len(run.requests.names) for run in e.runs)
    yield "requests", names == len(asks), f"recorded {names:,}, asked {len(asks):,}"
    prompts = sum(int(run.requests.prompt_tokens.sum()) for run in e.runs)
    wanted = sum(one.prompt_tokens for one in asks)
    known = all((run.requests.prompt_tokens >= 0).all() for run in e.runs)
    yield "prompt tokens", prompts == wanted if known else None, f"recorded {prompts:,}, asked {wanted:,}"


def exact(e: Evidence) -> Iterator[Check]:
    """Every gap and every wait is the sum of its parts, to the nanosecond."""
    off = max(p.reconcile.max_error_ns for p in e.partitions)
    negative = sum(p.reconcile.negative_parts for p in e.partitions)
    yield "gaps", not off and not negative and e.gaps > 0, f"{e.gaps:,} gaps, {off} ns off, {negative} negative parts"
    off, negative = _together(exactness(first_tokens(p)) for p in e.partitions)
    yield "first tokens", not off and not negative, f"{off} ns off, {negative} negative parts"
    for name in sorted({name for p in e.partitions for name in delivered(p)}):
        found = [boundary_gaps(p, name) for p in e.partitions]
        off, negative = _together(exactness(waits) for waits in found)
        said = f"{sum(len(waits.t0) for waits in found):,} gaps, {off} ns off, {negative} negative parts"
        yield f"gaps at the {name}", not off and not negative, said


def _together(found: Any) -> tuple[int, int]:
    pairs = list(found)
    return max(off for off, _ in pairs), sum(negative for _, negative in pairs)


def explained(e: Evidence, limits: Limits) -> Iterator[Check]:
    """Little of the gaps' time is nobody's, and little of the tail's."""
    rows, weight = (np.concatenate(one) for one in zip(*(_residual(p) for p in e.partitions), strict=True))
    gap, left = rows.T
    everything = np.ones(len(gap), bool)
    tail = gap >= np.percentile(np.repeat(gap, weight), 99) if len(gap) else everything
    for name, which, most in (("all gaps", everything, limits.residual), ("the tail", tail, limits.tail)):
        total = int((gap * weight)[which].sum())
        share = int((left * weight)[which].sum()) / total if total else 0.0
        yield f"residual of {name}", share <= most, f"{percent(share)} of their time, at most {most:.0%}"


def _residual(p: Partition) -> tuple[Any, Any]:
    left = p.rows[:, p.causes.index("residual")] if "residual" in p.causes else np.zeros_like(p.row_gap)
    return np.stack([p.row_gap, left], axis=1), p.row_weight


def account(e: Evidence, limits: Limits) -> Check:
    """What the recorders on the token's path say that they cost, of the time in steps and a step."""
    holds, told = True, []
    for run in e.runs:
        busy, steps = busy_ns(run), int((run.steps.emit != UNKNOWN).sum())
        for name, books in _books(run).items():
            if busy and not name.startswith("api") and isinstance(spent := books.get("self_ns"), int):
                holds &= spent <= max(limits.cost * busy, limits.cost_ns * steps)
                told.append(f"{name} {spent / busy:.2%}, {spent / steps / 1e3:.0f} us a step")
    said = f"{'; '.join(told)}; at most {limits.cost:.1%} of the time in steps, or {limits.cost_ns / 1e3:.0f} us"
    return "the recorder's own account", holds if told else None, said if told else "not recorded"


def busy_ns(run: Run) -> int:
    """How long there was a step under way, of those that emitted. Steps may overlap."""
    steps, emitted = run.steps, run.steps.emit != UNKNOWN
    t0, t1 = union(steps.t0[emitted], steps.t1[emitted])
    return int((t1 - t0).sum())


def _books(run: Run) -> dict[str, Mapping[str, Any]]:
    """Each process's own counts; the engine's are those at its end, where it lived to write them."""
    found = {
        name.removesuffix(".recorder"): books
        for name, books in run.facts.items()
        if name.endswith(".recorder") and isinstance(books, Mapping)
    }
    own = run.facts.get("closed") or run.facts.get("recorder")
    return {"engine": own, **found} if isinstance(own, Mapping) else found


def own_words(e: Evidence, heard: Sequence[str] = ()) -> Iterator[Check]:
    """What the recorders and the hooks say of themselves, in the log and on stderr."""
    losses = {"dropped": 0, "errors": 0, "refused": 0}
    unread = dict.fromkeys(_UNREAD, 0)
    for run in e.runs:
        for key in unread:
            unread[key] += run.notes.get(key, 0)
        for books in _books(run).values():
            for key in losses:
                losses[key] += books.get(key, 0)
    failed = [line for line in heard if line.startswith(FAILED)]
    said = ", ".join(f"{n} {key}" for key, n in losses.items())
    lost = [f"the log's reader: {n} {key.replace('_', ' ')}" for key, n in unread.items() if n]
    yield "nothing lost", not any(losses.values()) and not failed and not lost, "; ".join([said, *lost, *failed[:1]])
    hooks: dict[str, bool] = {}
    for run in e.runs:
        for name, found in run.facts.items():
            if (name == "hooks" or name.endswith(".hooks")) and isinstance(found, Mapping):
                hooks |= {key: hooks.get(key, False) or bool(value) for key, value in found.items()}
    missing = [name for name, found in hooks.items() if not found]
    if hooks:
        said = f"{len(hooks) - len(missing)} of {len(hooks)}" + (f"; missing: {', '.join(missing)}" if missing else "")
        yield "hooks found", True if not missing else None, said
    unexplained = sum(p.reconcile.skipped_steps_unexplained for p in e.partitions)
    yield "steps skipped without a reason", True, f"{unexplained:,} (counted, not judged)"
