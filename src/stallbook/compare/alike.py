"""Are these runs alike enough to be compared? What differs is named; the user may allow it, one key at a time.

Runs of one side must be repeats of one thing (`settings`); the two sides may differ in settings, since that is what
is compared, and in nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from stallbook.abilities import NOT_RECORDED
from stallbook.causes import OTHER, ordered
from stallbook.compare.sample import Sample
from stallbook.counters import STILL_DRIFT
from stallbook.errors import StallbookError

__all__ = ["DRIFT_LIMIT", "KEYS", "Difference", "differences", "known_keys", "refuse", "settings_changed"]

KEYS: Final = {
    "engine": "another engine, or another version of it",
    "workload": "another rate, length or trace of requests",
    "settings": "other settings within one side",
    "rules": "other rules, or a baseline that one log brings with it",
    "boundary": "gaps stamped elsewhere",
    "abilities": "a cause that one log records and another does not",
    "machine": "another kind of machine",
    "drift": "a machine whose speed moved, by its probe",
}
"""What may be allowed, and what each means."""

DRIFT_LIMIT: Final = 0.10
"""The slowest run's probe may be this much slower than the fastest's."""
NEARLY: Final = 0.01
"""Numbers up to this part apart are alike."""
SIZE_LIMIT: Final = 0.25
"""Mean sizes of requests may be this far apart ..."""
SIZE_ERRORS: Final = 4.0
"""... or by so many of their standard errors."""


@dataclass(frozen=True)
class Difference:
    """One way in which the runs are not alike. where: a run that shows it."""

    key: str
    text: str
    where: str


def differences(sides: Sequence[Sequence[Sample]]) -> list[Difference]:
    """Every key in which the runs of these sides (of one another, or of their own) are not alike, once each."""
    every = list(chain.from_iterable(sides))
    found: dict[str, Difference] = {}
    for difference in chain(
        _unequal("engine", every, lambda s: s.engine or "unnamed"),
        _workload(every),
        _sizes(sides),
        chain.from_iterable(_mapping("settings", side, lambda s: s.settings) for side in sides),
        _unequal("rules", every, lambda s: s.rules),
        _unequal("boundary", every, lambda s: s.boundary),
        _abilities(every),
        _mapping("machine", every, lambda s: s.machine),
        _drift(every),
    ):
        found.setdefault(difference.key, difference)
    return list(found.values())


def known_keys(keys: Collection[str]) -> tuple[str, ...]:
    """The same keys, if each is one of `KEYS`."""
    if unknown := [key for key in keys if key not in KEYS]:
        raise StallbookError("bad-allow", f"nothing is called {unknown[0]!r:.80}", f"allow any of {', '.join(KEYS)}")
    return tuple(keys)


def refuse(found: Sequence[Difference], allow: Collection[str]) -> None:
    """Raise where the runs differ in anything that is not allowed."""
    if not (over := [d for d in found if d.key not in allow]):
        return
    what = "; ".join(f"{d.key}: {d.text}" for d in over)
    remedy = f"compare like with like, or add --allow {','.join([*allow, *(d.key for d in over)])}"
    raise StallbookError("not-alike", f"not alike in {what}", remedy, over[0].where)


def settings_changed(before: Sequence[Sample], after: Sequence[Sample]) -> dict[str, tuple[Any, Any]]:
    """What was set differently on the two sides, where each side is of one mind."""
    told = [_common([s.settings for s in side]) for side in (before, after)]
    names = [*dict.fromkeys(chain.from_iterable(told))]
    return {n: (told[0].get(n), told[1].get(n)) for n in names if told[0].get(n) != told[1].get(n)}


def _common(maps: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {key: value for key, value in maps[0].items() if all(other.get(key) == value for other in maps)}


def _unequal(key: str, every: Sequence[Sample], of: Callable[[Sample], Any]) -> Iterator[Difference]:
    first = every[0]
    for other in every[1:]:
        if of(other) != of(first):
            yield Difference(key, f"{of(other)} here, {of(first)} in {first.name}", other.path)
            return


def _mapping(key: str, every: Sequence[Sample], of: Callable[[Sample], Mapping[str, Any]]) -> Iterator[Difference]:
    for other in every[1:]:
        one, two = of(every[0]), of(other)
        for name in dict.fromkeys([*one, *two]):
            if not _same(one.get(name), two.get(name)):
                yield Difference(key, f"{name} {two.get(name)} here, {one.get(name)} in {every[0].name}", other.path)
                return


def _same(one: Any, two: Any) -> bool:
    """Equal, or numbers that an engine measured for itself at its start, such as how many blocks it has room for."""
    if one == two:
        return True
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in (one, two))
    return numbers and abs(one - two) <= NEARLY * min(abs(one), abs(two))


def _workload(every: Sequence[Sample]) -> Iterator[Difference]:
    yield from _mapping("workload", every, lambda s: s.workload)
    traces: dict[Any, Sample] = {}
    for s in every:
        known = traces.setdefault(s.seed, s) if s.seed is not None and s.trace is not None else s
        if known.trace != s.trace:
            yield Difference("workload", f"seed {s.seed} is another trace than in {known.name}", s.path)
            return


def _sizes(sides: Sequence[Sequence[Sample]]) -> Iterator[Difference]:
    """Whether the requests of the two sides are of other sizes than chance gives."""
    if len(sides) < 2:
        return
    for name in sides[0][0].sizes:
        (one, error), (two, other) = (_mean([s.sizes[name] for s in side if name in s.sizes]) for side in sides)
        low, high = sorted((one, two))
        if low > 0 and high > (1 + SIZE_LIMIT) * low and high - low > SIZE_ERRORS * math.hypot(error, other):
            where = sides[0][0].path
            yield Difference("workload", f"{one:.4g} {name} a request here, {two:.4g} on the other side", where)
            return


def _mean(sums: Sequence[tuple[int, float, float]]) -> tuple[float, float]:
    """Mean and its standard error; none of what is not known."""
    n, total, squares = (sum(column) for column in zip(*sums, strict=True)) if sums else (0, 0.0, 0.0)
    if n < 2:
        return 0.0, 0.0
    mean = total / n
    return mean, math.sqrt(max(squares / n - mean**2, 0.0) / (n - 1))


def _abilities(every: Sequence[Sample]) -> Iterator[Difference]:
    """A named segment that only one run had is no ability of its log."""
    first = every[0]
    for other in every[1:]:
        for cause in ordered([*first.abilities, *other.abilities]):
            one, two = first.abilities.get(cause, NOT_RECORDED), other.abilities.get(cause, NOT_RECORDED)
            if one != two and not cause.startswith(OTHER):
                yield Difference("abilities", f"{cause} {two} here, {one} in {first.name}", other.path)
                return


def _drift(every: Sequence[Sample]) -> Iterator[Difference]:
    told = sorted(((s.speed.median_ns, s) for s in every if s.speed), key=lambda pair: pair[0])
    if told and told[-1][0] > (1 + DRIFT_LIMIT) * told[0][0] > 0:
        (fast, fastest), (slow, slowest) = told[0], told[-1]
        text = f"the machine was {slow / fast - 1:.0%} slower here than in {fastest.name}"
        yield Difference("drift", text, slowest.path)
        return
    for s in every:
        if s.speed and s.speed.moved is not None and s.speed.moved > STILL_DRIFT:
            yield Difference("drift", f"the machine's speed moved by {s.speed.moved:.0%} within this run", s.path)
            return
