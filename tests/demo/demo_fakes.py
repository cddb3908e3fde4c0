"""An engine's surroundings without time or arithmetic: a clock that moves only when work is done on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from stallbook.demo.engine import Engine
from stallbook.demo.history import CompactHistory
from stallbook.demo.ports import Clock, Tokenized
from stallbook.demo.scheduler import Limits
from stallbook.demo.workload import Arrival

US = 1000


class FakeClock:
    """Starts at 1 s. Reading it costs nothing; sleeping and work move it on."""

    def __init__(self) -> None:
        self.t = 1_000_000_000

    def now(self) -> int:
        return self.t

    def sleep(self, seconds: float) -> None:
        self.t += max(1, round(seconds * 1e9))

    @property
    def port(self) -> Clock:
        return Clock(self.now, self.sleep)


@dataclass
class FakeExecutor:
    """Costs: prefill 10 us a token, a captured row 100 us, an eager row 300 us, a swapped token 1 us.

    The next token of a row is its position, so that what was generated can be told from the outside.
    """

    clock: FakeClock
    cached: dict[int, int] = field(default_factory=dict)
    host: dict[int, int] = field(default_factory=dict)
    calls: list[tuple[Any, ...]] = field(default_factory=list)

    def prefill(self, key: int, tokens: Sequence[int], start: int) -> None:
        if start == 0:
            self.cached[key] = 0
        assert self.cached[key] == start, "a chunk begins where the cache ends"
        self.cached[key] += len(tokens)
        self.clock.t += 10 * US * len(tokens)
        self.calls.append(("prefill", key, start, len(tokens)))

    def decode(self, keys: Sequence[int], tokens: Sequence[int], positions: Sequence[int], padded: int) -> list[int]:
        assert padded >= len(keys)
        self.clock.t += 100 * US * padded
        return self._rows("decode", keys, positions)

    def decode_eager(self, keys: Sequence[int], tokens: Sequence[int], positions: Sequence[int]) -> list[int]:
        self.clock.t += 300 * US * len(keys)
        return self._rows("eager", keys, positions)

    def _rows(self, kind: str, keys: Sequence[int], positions: Sequence[int]) -> list[int]:
        for key, position in zip(keys, positions, strict=True):
            assert self.cached[key] == position, "a row decodes at the end of its cache"
            self.cached[key] += 1
        self.calls.append((kind, *keys))
        return list(positions)

    def swap_out(self, key: int, tokens: int) -> None:
        assert self.cached.pop(key) == tokens
        self.host[key] = tokens
        self.clock.t += US * tokens

    def swap_in(self, key: int) -> None:
        self.cached[key] = self.host.pop(key)
        self.clock.t += US * self.cached[key]

    def drop(self, key: int) -> None:
        self.cached.pop(key, None)
        self.host.pop(key, None)


class FakeIntake:
    """A character a token, 1 us a character."""

    on_loop = True

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock

    def submit(self, key: int, text: str) -> list[int] | None:
        self.clock.t += US * len(text)
        return [1] * len(text)

    def poll(self) -> list[Tokenized]:
        return []

    def close(self) -> None:
        pass


class LateIntake(FakeIntake):
    """Answers after a fixed delay, as a worker process would, at no cost to the loop."""

    on_loop = False

    def __init__(self, clock: FakeClock, delay_ns: int = 2_000_000) -> None:
        super().__init__(clock)
        self.delay = delay_ns
        self.pending: list[tuple[int, Tokenized]] = []

    def submit(self, key: int, text: str) -> list[int] | None:
        self.pending.append((self.clock.t + self.delay, Tokenized(key, [1] * len(text))))
        return None

    def poll(self) -> list[Tokenized]:
        ready = [item for t, item in self.pending if t <= self.clock.t]
        self.pending = [(t, item) for t, item in self.pending if t > self.clock.t]
        return ready


class Tape:
    """A recorder that keeps what it was told, as (method, arguments, time)."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.names: list[str] = []
        self.calls: list[tuple[Any, ...]] = []
        self.blocked: list[int] = []
        self.handles = 0

    def name(self, text: str) -> int:
        self.names.append(text)
        return len(self.names) - 1

    def arrive(self, request: str, prompt_tokens: int, max_tokens: int, t: int) -> int:
        self.calls.append(("arrive", request, prompt_tokens, max_tokens, t))
        self.handles += 1
        return self.handles - 1

    def begin(self, *, t: int | None) -> int:
        at = self.clock.t if t is None else t
        self.calls.append(("begin", at))
        return at

    def emit(self) -> int:
        self.calls.append(("emit", self.clock.t))
        return self.clock.t

    def enter(self, name: int, request: int = -1, t: int | None = None) -> None:
        self.calls.append(("enter", self.names[name], request, self.clock.t if t is None else t))

    def end(self, graph: int, padded: int, decode_tokens: int, kv_tokens: int, *, blocked: int) -> int:
        self.calls.append(("end", graph, padded, decode_tokens, kv_tokens, self.clock.t))
        self.blocked.append(blocked)
        return self.clock.t

    def __getattr__(self, method: str) -> Any:
        return lambda *arguments: self.calls.append((method, *arguments, self.clock.t))

    def of(self, *methods: str) -> list[tuple[Any, ...]]:
        return [call for call in self.calls if call[0] in methods]


def engine_of(trace: list[Arrival], limits: Limits, **more: Any) -> tuple[Engine, FakeClock, FakeExecutor, Tape]:
    clock = FakeClock()
    executor, tape = FakeExecutor(clock), Tape(clock)
    parts: dict[str, Any] = {
        "executor": executor, "intake": FakeIntake(clock), "recorder": tape, "clock": clock.port,
        "history": CompactHistory(),
    } | {key: part(clock) if isinstance(part, type) else part for key, part in more.items()}  # fmt: skip
    return Engine(trace, limits, **parts), clock, executor, tape
