"""The workload: who asks what, when. The same seed gives the same trace, byte for byte.

Arrivals are a Poisson process whose rate swells by 60% on a 15 s cycle; prompts are log-normal around 1,000
characters, and one request in a hundred pastes a whole document; outputs are exponential around 300 tokens.

Only `Random.random()` is drawn from: its sequence for a given seed is the one that Python promises to keep.
Each request's text has its own seed, so that its length or a later request's text never moves an arrival.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from statistics import NormalDist
from typing import Final

__all__ = [
    "MAX_NEW", "MAX_PROMPT", "MEAN_NEW", "Arrival", "make_burst", "make_text", "make_trace", "trace_digest",
]  # fmt: skip

MAX_PROMPT: Final = 2048
"""Prompt tokens kept; a document is cut to these after it was tokenized whole."""
MAX_NEW: Final = 1000
SWELL: Final = 0.6
CYCLE_S: Final = 15.0
DOCUMENT_SHARE: Final = 0.01
DOCUMENT_CHARS: Final = (150_000, 400_000)
CHARS_LOG_MEAN, CHARS_LOG_SIGMA = 6.9, 0.6
CHARS_PER_TOKEN: Final = 4.4
NEW_FLOOR, NEW_SCALE = 16, 280.0
MEAN_NEW: Final = NEW_FLOOR + NEW_SCALE * (1 - math.exp(-(MAX_NEW - NEW_FLOOR) / NEW_SCALE))
"""Output tokens of a mean request, with the cut at MAX_NEW: 287.7."""

_PROSE: Final = (
    "a an and as at be by can do for from has if in into is it its may more no not of on one or so than that the "
    "then this to up was we when will with you answer cache client column context copy count cost engine error "
    "field first index input latency layer limit list memory message model number order output page parse queue "
    "report request response row schedule server state stream string table tensor test thread time token user value"
)
_WORDS: Final = tuple(_PROSE.split())
_UNITS: Final = ("ms", "kb", "%", ".5")
_NUMBER_SHARE: Final = 0.08
_SALT: Final = "trace-4"
"""Of sixteen salts the one whose seeds 1 to 5 stay nearest to the mean load: within 9% at 5 to 12 arrivals a second."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request of the trace. `at_ns` counts from the start of the run."""

    name: str
    at_ns: int
    text: str
    max_new: int


def make_text(random: Random, chars: int) -> str:
    """Filler prose of about this many characters; one word in twelve is a number, which no vocabulary holds."""
    draw, words, count = random.random, _WORDS, len(_WORDS)
    scale = count / (1 - _NUMBER_SHARE)
    out: list[str] = []
    size = 0
    while size < chars:
        u = draw()
        if u < _NUMBER_SHARE:
            number = int(u / _NUMBER_SHARE * 400_000)
            word = f"{number >> 2}{_UNITS[number & 3]}"
        else:
            word = words[int((u - _NUMBER_SHARE) * scale)]
        out.append(word)
        size += len(word) + 1
    return " ".join(out)


def make_trace(seed: int, seconds: float, rate: float) -> list[Arrival]:
    """Requests that arrive within `seconds`, `rate` a second on average over whole cycles."""
    random = Random(f"{_SALT} {seed}")
    trace: list[Arrival] = []
    peak = 1 + SWELL
    now = 0.0
    while True:
        now += -math.log(1 - random.random()) / (rate * peak)
        if now >= seconds:
            return trace
        if random.random() * peak <= 1 + SWELL * math.sin(2 * math.pi * now / CYCLE_S):  # thinning
            trace.append(_arrival(random, seed, len(trace), int(now * 1e9)))


def make_burst(count: int, batch: int) -> list[Arrival]:
    """The same mix all at once and without documents, to saturate an engine for a measurement.

    A short measurement must not depend on a lucky draw: each group of `batch` requests holds evenly spaced
    quantiles of every length, in a shuffled order. The first group's prompts are longer by as much as a request
    in mid-answer has already written, so that the engine attends over a steady state's context from the start.
    """
    random = Random("burst")
    burst: list[Arrival] = []
    while len(burst) < count:
        aged = [0.0] * batch if burst else _quantiles(random, batch)
        for size, new, age in zip(_quantiles(random, batch), _quantiles(random, batch), aged, strict=True):
            chars = math.exp(CHARS_LOG_MEAN + CHARS_LOG_SIGMA * NormalDist().inv_cdf(size))
            chars += min(MAX_NEW, -math.log(1 - age) * NEW_SCALE) * CHARS_PER_TOKEN
            text = make_text(Random(f"burst {len(burst)}"), int(chars))
            burst.append(Arrival(f"b{len(burst)}", 0, text, _output(new)))
    return burst


def _quantiles(random: Random, count: int) -> list[float]:
    """The middles of `count` equal parts of (0, 1), shuffled."""
    return sorted(((i + 0.5) / count for i in range(count)), key=lambda _: random.random())


def _output(u: float) -> int:
    """Output tokens at a quantile."""
    return min(MAX_NEW, NEW_FLOOR + int(-math.log(1 - u) * NEW_SCALE))


def _arrival(random: Random, seed: int, index: int, at_ns: int) -> Arrival:
    if random.random() < DOCUMENT_SHARE:
        low, high = DOCUMENT_CHARS
        chars = low + int(random.random() * (high - low + 1))
    else:
        chars = int(math.exp(CHARS_LOG_MEAN + CHARS_LOG_SIGMA * _normal(random)))
    new = _output(random.random())
    return Arrival(f"r{index}", at_ns, make_text(Random(f"text {seed} {index}"), chars), new)


def _normal(random: Random) -> float:
    radius = math.sqrt(-2 * math.log(1 - random.random()))
    return radius * math.cos(2 * math.pi * random.random())


def trace_digest(trace: Iterable[Arrival]) -> str:
    """SHA-256 of everything in a trace: equal digests mean equal work at equal times."""
    digest = hashlib.sha256()
    for item in trace:
        digest.update(f"{item.name} {item.at_ns} {item.max_new} {len(item.text)}\n".encode())
        digest.update(item.text.encode())
    return digest.hexdigest()
