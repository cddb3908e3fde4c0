"""A comparison as text of 80 columns and as Markdown: the answer first, the figures and what supports them below."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from stallbook.compare import Answer, Comparison, Sample
from stallbook.compare.interval import LEAST_RUNS
from stallbook.compare.spread import Spread
from stallbook.compare.verdict import FEW_PAIRS, LEAST_PAIRS
from stallbook.digits import short
from stallbook.report import words
from stallbook.report.lines import facts, grid, wrapped
from stallbook.report.markdown import cell, table

__all__ = ["LABELS", "as_markdown", "blocks", "change", "dumps", "headline", "probability"]

LABELS: Final = {
    "itl.p50": "p50", "itl.p90": "p90", "itl.p99": "p99", "itl.p99.9": "p99.9", "itl.max": "worst",
    "ttft.p50": "TTFT p50", "ttft.p99": "TTFT p99", "tokens_per_s": "tokens/s",
}  # fmt: skip
"""What the figures of the headline are called."""
NAMED: Final = 5
"""Runs of a side that are named one by one."""
CAUSES_TOLD: Final = 4
COLUMNS: Final = ("B", "A", "change", "p", "answer")
CHANCE: Final = {"established": (60, 100), "suggestive": (30, 100)}
"""Where nothing changed, one figure in about so many reads as this: with 5 or 6 pairs, and otherwise."""

Show = Callable[["float | None"], str]


@dataclass(frozen=True)
class Block:
    """One table: a title, its head and rows, and what stands below. left: columns of words."""

    title: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    left: tuple[int, ...] = (0,)
    below: tuple[str, ...] = ()


def dumps(c: Comparison) -> str:
    """The comparison as plain text."""
    return "\n".join(_lines(c)) + "\n"


def _lines(c: Comparison) -> Iterator[str]:
    for sentence in headline(c):
        yield from wrapped(sentence)
    yield ""
    yield from facts(list(sides(c)))
    for block in blocks(c):
        yield from ("", block.title)
        yield from grid(block.head, block.rows, block.left)
        for sentence in block.below:
            yield from wrapped(sentence, "  ")
    yield from ("", "How to read this")
    for note in notes(c):
        yield from wrapped(note, "  ")


def as_markdown(c: Comparison) -> str:
    """A summary for a pull request: the answer and the figures; all else is folded away."""
    first, *others = headline(c)
    lines = [f"### stallbook: {cell(first)}", "", cell(" ".join(others)), ""]
    figures, *more = blocks(c)
    lines += [*_marked(figures), "", "<details><summary>All runs as one, and causes</summary>", ""]
    for block in more:
        lines += [*_marked(block), ""]
    lines += ["</details>", "", *(f"- {name}: {cell(told)}" for name, told in sides(c)), ""]
    lines.append(f"<sub>{' '.join(map(cell, notes(c)))}</sub>")
    return "\n".join(lines) + "\n"


def _marked(block: Block) -> Iterator[str]:
    yield from (f"**{block.title}**", "")
    right = [i for i in range(len(block.head)) if i not in block.left]
    yield from table(block.head, (tuple(map(cell, row)) for row in block.rows), right)
    for sentence in block.below:
        yield from ("", cell(sentence))


def blocks(c: Comparison) -> Iterator[Block]:
    """Every table of the comparison."""
    rows = [(label, *_cells(c.answers[name], short)) for name, label in LABELS.items()]
    title = "Figures, ITL and TTFT in ms: median [min-max] of runs"
    yield Block(title, ("", *COLUMNS), rows, (0, 5), tuple(_intervals(c)))
    title = "All runs of a side as one, in ms: quantiles of the merged distributions"
    yield Block(title, ("", "gaps", "p50", "p90", "p99", "p99.9", "worst", "TTFT p50", "TTFT p99"), list(_merged(c)))
    yield from _causes(c, "tail", "The tail's time by cause, in %", lambda v: words.percent(v).rstrip("%"), 0.001)
    yield from _causes(c, "gap", "A gap's time by cause, in us: mean of a run's gaps", _micros, 0.002)
    yield from _causes(c, "first", "A first token's wait by cause, in ms: mean of a run's waits", short, 0.002)


def headline(c: Comparison) -> Iterator[str]:
    """What moved, in one sentence; then what the common test says of it."""
    asked = [c.answers[name] for name in LABELS]
    told = {word: _moved(asked, word) for word in CHANCE}
    told = {word: text for word, text in told.items() if text}
    test = f"One test of all {c.overall.figures} figures at once: p = {probability(c.overall.p)}"
    if c.overall.word != "not resolved":
        yield ". ".join(f"{word.capitalize()}: {text}" for word, text in told.items()) + "."
        yield f"Changes are from B to A. {test}."
    else:
        yield f"Not resolved: {_few(c) or 'chance could have moved these figures as far'}."
        alone = f"; by themselves, {', '.join(f'{word}: {text}' for word, text in told.items())}" if told else ""
        yield f"{test}{alone}."
    if causes := _moved_causes(c):
        yield f"Of a gap's mean time, established: {causes}."


def _few(c: Comparison) -> str:
    if c.pairs is not None and len(c.pairs) < LEAST_PAIRS:
        return f"{words.many(len(c.pairs), 'pair')} can resolve nothing, {LEAST_PAIRS} can"
    if c.pairs is None and min(len(c.before), len(c.after)) < LEAST_PAIRS - 1:
        runs = words.many(len(c.before), "run")
        return f"{len(c.after)} against {runs} can hardly resolve anything, {LEAST_PAIRS} a side can"
    return ""


def _moved(answers: Sequence[Answer], word: str) -> str:
    return ", ".join(f"{LABELS[a.figure.name]} {change(a)}" for a in answers if a.word == word)


def _moved_causes(c: Comparison) -> str:
    """The causes whose time in a gap changed the most."""
    mine = [a for name, a in c.answers.items() if name.startswith("gap.") and a.word == "established"]
    mine.sort(key=lambda a: -abs(a.measured.change or 0.0))
    told = [f"{words.plain(a.figure.cause)} {change(a)} us" for a in mine[:CAUSES_TOLD]]
    return ", ".join([*told, *([f"{len(mine) - CAUSES_TOLD} more"] if len(mine) > CAUSES_TOLD else [])])


def sides(c: Comparison) -> Iterator[tuple[str, str]]:
    yield "A", _named(c.after)
    yield "B", f"{_named(c.before)} (compared against)"
    if c.pairs is not None:
        yield "paired", f"by seed: {', '.join(words.plain(str(c.after[i].seed)) for _, i in c.pairs)}"
    else:
        yield "paired", "no: too few seeds stand once on both sides"
    if c.alone:
        yield "left out", f"{', '.join(words.plain(s.name) for s in c.alone)}: no partner of that seed"
    first = c.after[0]
    yield "engine", f"{words.plain(first.engine) or 'unnamed'}; {first.boundary} boundary; rules {first.rules}"
    if c.settings:
        told = (f"{words.plain(str(key))} {_value(a)}, not {_value(b)}" for key, (b, a) in c.settings.items())
        yield "set in A", "; ".join(told)
    for difference in c.allowed:
        place = words.plain(difference.where.rstrip("/").rsplit("/", 1)[-1])
        yield "allowed", f"{difference.key}: {place}: {words.plain(difference.text)}"


def _named(side: Sequence[Sample]) -> str:
    shown = [words.plain(s.name) for s in side[:NAMED]]
    more = [f"{len(side) - NAMED} more"] if len(side) > NAMED else []
    return f"{words.many(len(side), 'run')}: {', '.join(shown + more)}"


def _value(value: Any) -> str:
    return words.plain(str(value)) if value is not None else "unset"


def _cells(a: Answer, show: Show) -> tuple[str, ...]:
    return (*(_ranged(s, show) for s in a.spreads), change(a), probability(a.measured.p), a.word)


def _intervals(c: Comparison) -> Iterator[str]:
    told = [
        f"{label} {low:+.0%} to {high:+.0%}"
        for name, label in LABELS.items()
        if (interval := c.answers[name].interval) is not None
        for low, high in [interval]
    ]
    if told:
        yield f"95% of changes if the runs were drawn anew: {', '.join(told)}."


def _merged(c: Comparison) -> Iterator[tuple[str, ...]]:
    for label, totals in zip("BA", c.merged, strict=True):
        ns, ttft = totals.gaps.lengths, totals.ttft
        figures = [*(ns.percentile(q) for q in (50, 90, 99, 99.9)), ns.max, ttft.percentile(50), ttft.percentile(99)]
        yield label, f"{ns.count:,}", *(short(None if v is None else v / 1e6) for v in figures)


def _causes(c: Comparison, group: str, title: str, show: Show, smallest: float) -> Iterator[Block]:
    """A table of causes, the largest first; what is small on both sides in every run is only named."""
    mine = [a for name, a in c.answers.items() if name.startswith(f"{group}.")]
    told = [a for a in mine if a.missing is None and any(a.spreads)]
    highest = {a.figure.cause: max(s.high for s in a.spreads if s is not None) for a in told}
    whole = 1.0 if group == "tail" else sum(s.median for a in told if (s := a.spreads[0]) is not None)
    large = [a for a in told if highest[a.figure.cause] >= smallest * whole]
    if not large:
        return
    large.sort(key=lambda a: -max(s.median for s in a.spreads if s is not None))
    rows = [(words.plain(a.figure.cause), *_cells(a, show)) for a in large]
    small = [words.plain(a.figure.cause) for a in told if a not in large]
    missing = [words.plain(a.figure.cause) for a in mine if a.missing is not None]
    below = [f"Below {smallest:.1%} in every run: {', '.join(small)}."] if small else []
    below += [f"Not recorded: {', '.join(missing)}."] if missing else []
    yield Block(title, ("cause", *COLUMNS), rows, (0, 5), tuple(below))


def notes(c: Comparison) -> Iterator[str]:
    asked = c.judged
    exact = "exact" if all(a.measured.exact for a in asked) else "drawn"
    yield "B and A: median [min-max] of runs; a run is the sample."
    if c.pairs is not None:
        yield f"change: the median over pairs. p: {exact} sign-flip test of the pairs, for this figure alone."
    else:
        yield f"change: of the median. p: {exact} test of all ways to deal the runs to two sides, for it alone."
    if any(a.normalised for a in asked):
        yield "Times are judged as measured and normalised by the machine's probe: the weaker answer stands."
    found = ", ".join(f"{sum(a.word == word for a in asked)} {word}" for word in CHANCE)
    otherwise = c.pairs is None or len(c.pairs) > FEW_PAIRS
    chance = " and ".join(f"{len(asked) / one_in[otherwise]:.1f}" for one_in in CHANCE.values())
    yield f"{len(asked)} figures were asked: {found}. Had nothing changed, chance alone would give about {chance}."
    if min(len(c.before), len(c.after)) < LEAST_RUNS:
        yield "More runs, not longer ones, resolve more."


def change(a: Answer) -> str:
    """A change with its sign: in percent of a time or rate, in points of a share, in ms or us of a cause's time."""
    value = a.measured.change
    if value is None:
        return "-"
    if a.ratio:
        return f"{value - 1:+.0%}" if value < 10 else f"x{value:,.0f}"
    sign = "" if not value else "+" if value > 0 else "-"
    if a.figure.kind == "share":
        points = abs(value) * 100
        return f"{sign}{'0' if not value else f'{points:.1f}' if points >= 0.05 else '<0.1'} pt"
    return sign + (_micros if a.figure.name.startswith("gap.") else short)(abs(value))


def _micros(ms: float | None) -> str:
    """Milliseconds as whole microseconds."""
    if ms is None:
        return "-"
    if ms >= 9.9995:
        return short(ms * 1e3)
    return f"{ms * 1e3:.0f}" if ms == 0 or ms >= 0.0005 else "<1"


def _ranged(values: Spread | None, show: Show) -> str:
    if values is None:
        return "-"
    extent = f" [{show(values.low)}-{show(values.high)}]" if values.runs > 1 else ""
    return show(values.median) + extent


def probability(p: float | None) -> str:
    """To two digits."""
    return "-" if p is None else f"{p:.2f}" if p >= 0.0095 else "<.01"
