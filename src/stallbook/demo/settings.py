"""`Settings`: everything that a run of the demonstrator can be told. Checked when built; saved in each log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from typing import Any, Final

from stallbook.demo.blocks import blocks_for
from stallbook.demo.workload import MAX_NEW, MAX_PROMPT
from stallbook.errors import StallbookError

__all__ = [
    "ADMIT_BY",
    "DRAIN_FACTOR",
    "DRAIN_FLOOR_S",
    "MAX_REQUESTS",
    "MIN_KV_BLOCKS",
    "PREEMPTION",
    "TOKENIZE",
    "Settings",
]

PREEMPTION: Final = ("swap", "recompute")
ADMIT_BY: Final = ("free", "forecast")
TOKENIZE: Final = ("loop", "process")

MIN_KV_BLOCKS: Final = blocks_for(MAX_PROMPT + MAX_NEW)
"""A pool that cannot hold the longest request alone could never finish it."""

MAX_REQUESTS: Final = 1_000_000
"""All are made before the first is served."""

DRAIN_FACTOR: Final = 2.0
DRAIN_FLOOR_S: Final = 30.0
"""After the last arrival the queues get `max(30 s, 2 * seconds)` to drain; then the run ends, and what is
unfinished is recorded as unfinished. Three times the capacity still drains; an endless run does not exist."""


def _bad(field: str, what: str, remedy: str) -> StallbookError:
    return StallbookError("bad-setting", f"{field} {what}", remedy)


@dataclass(frozen=True)
class Settings:
    """One run of the demonstrator. The defaults are the post's baseline."""

    seconds: float = 60.0
    """How long requests arrive; the run ends when they are served (or at the drain limit)."""
    seed: int = 1
    rate: float | None = None
    """Mean arrivals a second; None measures this machine first and picks the knee of saturation."""
    max_num_seqs: int = 48
    token_budget: int = 2048
    """Tokens a step may process: its decodes first, prefill with what is left."""
    capture_sizes: tuple[int, ...] = (1, 2, 4, 8, 16, 24, 32)
    """Batch sizes with a captured (batched) decode path; empty: every decode runs eagerly."""
    kv_blocks: int = 1000
    preemption: str = "swap"
    admit_watermark: float = 0.0
    """Admit a new request only if this fraction of the pool stays free."""
    admit_by: str = "free"
    """Stays free now (`free`), or by what all will need before they are done (`forecast`)."""
    decode_weight: float = 1.0
    """What a decode takes of the token budget, in prompt tokens: about what it takes of a step's time."""
    context_weight: float = 0.0
    """What a prompt token takes of the budget beyond 1, for each token before it in its prompt."""
    gc_freeze: bool = False
    compact_history: bool = False
    tokenize: str = "loop"
    tokenizer_cpus: tuple[int, ...] | None = None
    tokenizer_nice: int = 0
    """How far its process steps back for others, 0 to 19: then the engine does not wait for a core that it has."""
    blas_threads: int = 1
    record: bool = True

    def __post_init__(self) -> None:
        self._check_types()
        if not 0 < self.seconds <= 86_400:
            raise _bad("seconds", f"is {self.seconds}", "give a length between 0 and 86400 seconds")
        if self.rate is not None and not 0 < self.rate <= 1000:
            raise _bad("rate", f"is {self.rate}", "give requests a second between 0 and 1000, or auto")
        if self.rate is not None and self.seconds * self.rate > MAX_REQUESTS:
            what = f"times {self.seconds} seconds are {self.rate * self.seconds:,.0f} requests"
            raise _bad("rate", f"{self.rate} {what}", f"give fewer, up to {MAX_REQUESTS:,} in all")
        if not 1 <= self.max_num_seqs <= 512:
            raise _bad("max_num_seqs", f"is {self.max_num_seqs}", "give a number of sequences from 1 to 512")
        if not self.max_num_seqs <= self.token_budget <= 1_000_000:
            remedy = f"give at least max_num_seqs ({self.max_num_seqs}): each decode takes one token of it"
            raise _bad("token_budget", f"is {self.token_budget}", remedy)
        if self.kv_blocks < MIN_KV_BLOCKS or self.kv_blocks > 1_000_000:
            remedy = f"give at least {MIN_KV_BLOCKS}, the blocks of the longest request"
            raise _bad("kv_blocks", f"is {self.kv_blocks}", remedy)
        if not 0 <= self.admit_watermark < 1:
            raise _bad("admit_watermark", f"is {self.admit_watermark}", "give a fraction from 0 up to, not with, 1")
        if not 0 <= self.decode_weight <= 1000:
            raise _bad("decode_weight", f"is {self.decode_weight}", "give prompt tokens from 0 to 1000; 1 is plain")
        if not 0 <= self.context_weight <= 1:
            raise _bad("context_weight", f"is {self.context_weight}", "give a fraction of a token from 0 to 1")
        if not 1 <= self.blas_threads <= 256:
            raise _bad("blas_threads", f"is {self.blas_threads}", "give a number of threads from 1 to 256")
        self._check_choices()

    def _check_choices(self) -> None:
        sizes = self.capture_sizes
        if any(size < 1 for size in sizes) or any(a >= b for a, b in pairwise(sizes)):
            raise _bad("capture_sizes", f"are {list(sizes)}", "give positive sizes in rising order, such as 1,2,4,8")
        if self.preemption not in PREEMPTION:
            raise _bad("preemption", f"is {self.preemption!r}", "choose swap or recompute")
        if self.admit_by not in ADMIT_BY:
            raise _bad("admit_by", f"is {self.admit_by!r}", "choose free or forecast")
        if self.tokenize not in TOKENIZE:
            raise _bad("tokenize", f"is {self.tokenize!r}", "choose loop or process")
        cpus = self.tokenizer_cpus
        if cpus is not None and self.tokenize != "process":
            raise _bad("tokenizer_cpus", "needs a tokenizer in its own process", "add tokenize=process")
        if self.tokenizer_nice and self.tokenize != "process":
            raise _bad("tokenizer_nice", "needs a tokenizer in its own process", "add tokenize=process")
        if not 0 <= self.tokenizer_nice <= 19:
            raise _bad("tokenizer_nice", f"is {self.tokenizer_nice}", "give a whole number from 0 to 19")
        if cpus is not None and (not cpus or min(cpus) < 0):
            raise _bad("tokenizer_cpus", f"are {list(cpus)}", "give CPU numbers from 0 up")

    def _check_types(self) -> None:
        """Settings also come from JSON, where a number can be anything; booleans are not numbers here."""
        for name in ("capture_sizes", "tokenizer_cpus"):
            value = getattr(self, name)
            if isinstance(value, list):
                object.__setattr__(self, name, tuple(value))
        for field in fields(self):
            if not _fits(str(field.type), getattr(self, field.name)):
                raise _bad(field.name, f"is {getattr(self, field.name)!r}", f"give a value of type {field.type}")

    @classmethod
    def from_json(cls, text: str) -> Settings:
        """Settings from a JSON object; what it leaves out keeps its default."""
        try:
            given = json.loads(text)
        except ValueError:
            raise StallbookError("bad-settings", "the settings are not JSON", "give one JSON object") from None
        return cls.from_mapping(given)

    @classmethod
    def from_mapping(cls, given: Mapping[str, Any]) -> Settings:
        """Settings from a mapping of field names."""
        if not isinstance(given, Mapping):
            raise StallbookError("bad-settings", "the settings are not an object", "give one JSON object")
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                raise _bad(str(name), "is not a setting", f"choose among {', '.join(known)}")
        return cls(**given)

    def as_dict(self) -> dict[str, Any]:
        """What `from_mapping` reads back."""
        return asdict(self)

    @property
    def drain_seconds(self) -> float:
        """How long after the last arrival the run may still take."""
        return max(DRAIN_FLOOR_S, DRAIN_FACTOR * self.seconds)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _fits(kind: str, value: object) -> bool:
    if value is None:
        return kind.endswith("| None")
    if kind.startswith("tuple"):
        return isinstance(value, tuple) and all(_is_int(item) for item in value)
    if kind.startswith("float"):
        return _is_int(value) or isinstance(value, float)  # what is not finite lies in no range
    if kind == "int":
        return _is_int(value)
    return isinstance(value, bool if kind == "bool" else str)
