"""Random logs that are valid by section 3.2 and full of coincidences: small whole times, so that edges meet often."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

Event = dict[str, Any]
KINDS = ("post", "serial", "mixed", "async", "away", "os", "edges", "fold", "everything")
"""`fold`: nothing that `post` does not know but run-queue delay, on which the two sets of rules agree when folded."""
HOST_NAMES = {
    "post": ["decode"] * 4 + ["prefill", "tok", "swap"],
    "full": ["decode"] * 7 + ["prefill", "tok", "swap", "sched", "sample", "output", "compile", "kv"],
}
BASELINES: list[dict[str, float] | None] = [
    {"fixed_ns": 5, "row_ns": 1, "kv_token_ns": 0},
    {"fixed_ns": 3, "row_ns": 2, "kv_token_ns": 0},
    {"fixed_ns": 2.5, "row_ns": 0.75, "kv_token_ns": 0},
    {"fixed_ns": 4, "row_ns": 0, "kv_token_ns": 0},
    {"fixed_ns": 1, "row_ns": 1, "kv_token_ns": 0.25},
    {"fixed_ns": -4, "row_ns": 2, "kv_token_ns": 0},
    {"fixed_ns": 12, "row_ns": -2, "kv_token_ns": 0},
    {"fixed_ns": 0, "row_ns": 0, "kv_token_ns": 0},
    {"fixed_ns": -1, "row_ns": 0, "kv_token_ns": 0},
]


def random_log(rng: random.Random, kind: str = "everything") -> list[Event]:
    """One valid log of a kind of `KINDS`, header first."""
    return Maker(rng, kind).log()


def to_jsonl(events: list[Event]) -> str:
    """A log as the text of a JSON Lines file."""
    return "".join(json.dumps(event) + "\n" for event in events)


class Maker:
    """One log in the making. `unit`: 1 for nanoseconds, or so large that primary causes matter."""

    def __init__(self, rng: random.Random, kind: str) -> None:
        self.rng, self.kind = rng, kind
        self.everything = kind == "everything"
        self.unit = rng.choice([1, 1, 250_000])
        self.names = HOST_NAMES["post" if kind in ("post", "fold") else "full"]
        self.device = kind == "async" or (self.everything and rng.random() < 0.6)
        self.overlap = self.device or (kind in ("fold", "everything") and rng.random() < 0.3)
        self.mixes = kind in ("mixed", "everything")
        self.delay = rng.choice(["none", "segment", "step", "both"]) if kind in ("os", "fold", "everything") else "none"
        self.judged = kind in ("away", "everything") and rng.random() < 0.8
        self.kv = rng.choice(["all", "none", "some"])
        self.requests = [f"r{i}" for i in range(rng.randint(1, 4))]
        self.steps: list[Event] = []
        self.segments: list[Event] = []
        self.emits: list[Event] = []
        self.stamps: dict[str, list[tuple[int, int]]] = {r: [] for r in self.requests}

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def some(self, most: int) -> int:
        """A short time: often 0, and off the grid now and then."""
        if self.chance(0.3):
            return 0
        ns = self.rng.randint(1, most) * self.unit
        return ns + self.rng.randint(0, 3) if self.unit > 1 and self.chance(0.2) else ns

    def log(self) -> list[Event]:
        self.make_steps()
        body = self.steps + self.segments + self.emits + self.pauses()
        if self.kind in ("away", "post", "fold", "everything"):
            body += [e for r in self.requests for e in self.evictions(r)]
        if self.kind in ("away", "everything"):
            body += [e for r in self.requests for e in self.holds(r)]
        if self.kind in ("edges", "everything"):
            body += [e for r in self.requests for e in self.way_in(r, body)] + [
                e for r in self.requests for e in self.way_out(r)
            ]
        self.rng.shuffle(body)
        if self.chance(0.3):
            end = max((e[k] for e in body for k in ("t", "t0", "t1") if isinstance(e.get(k), int)), default=0)
            body += [{"e": "finish", "request": r, "t": end} for r in self.requests if self.stamps[r]]
        return [self.header(), *body]

    def header(self) -> Event:
        records = ["segments", "gc", "evictions", "graph", "members", "os", "device", "holds", "kv_tokens"]
        head: Event = {"stallbook": 1, "engine": "random", "boundary": "engine", "records": records, "config": {}}
        given = self.rng.choice(BASELINES)
        if given is not None:
            head["baseline"] = {k: v * self.unit for k, v in given.items()}
        return head

    # --- steps ---------------------------------------------------------------------------------------------------

    def make_steps(self) -> None:
        t0, emitted, step = self.some(5), 0, self.rng.randint(0, 2)
        for _ in range(self.rng.randint(1, 9)):
            t1 = t0 + self.some(40) + self.some(20)
            self.make_segments(step, t0, t1)
            self.make_step(step, t0, t1)
            if self.chance(0.8):
                low = max(t0, emitted)
                emitted = self.rng.choice([max(low, t1), low + self.some(20), self.an_edge(step, low)])
                self.emit(step, emitted)
            step += self.rng.choice([1, 1, 1, 2])
            after = t1 if not self.overlap else t0 + self.some(12)
            t0 = max(after, t0) if self.overlap or self.chance(0.5) else max(after, emitted)
            t0 += self.some(6)

    def an_edge(self, step: int, low: int) -> int:
        ends = [s["t1"] for s in self.segments if s["step"] == step and s["t1"] >= low]
        return self.rng.choice(ends) if ends else low

    def make_step(self, step: int, t0: int, t1: int) -> None:
        n = self.rng.choice([0, 1, 2, 3, 4, 6])
        prefill = self.rng.choice([0, 0, 5, 64])
        if not self.mixes and not any(s["step"] == step and s["name"] == "prefill" for s in self.segments):
            prefill = 0
        row: Event = {"e": "step", "id": step, "t0": t0, "t1": t1, "decode_tokens": n, "prefill_tokens": prefill}
        graph = self.rng.choice(["captured", "captured", "eager", "eager", "none"])
        if graph != "none" or self.chance(0.5):
            row["graph"] = graph
        if self.chance({"captured": 0.9, "eager": 0.3, "none": 0.3}[graph]):
            row["padded"] = self.rng.choice([n, n + 1, n + 3])
        if self.kv == "all" or (self.kv == "some" and self.chance(0.5)):
            row["kv_tokens"] = self.rng.randint(0, 40)
        if self.delay in ("step", "both") and self.chance(0.8):
            row["run_delay_ns"] = self.some(self.rng.choice([20, 80]))
        self.steps.append(row)

    def make_segments(self, step: int, t0: int, t1: int) -> None:
        for a, b, depth in self.windows(t0, t1):
            name = self.rng.choice(self.names if depth == 0 else [*self.names, "lora"])
            if self.kind in ("post", "fold"):
                name = self.rng.choice(self.names)
            row: Event = {"e": "segment", "step": step, "name": name, "lane": "host", "t0": a, "t1": b}
            if self.delay in ("segment", "both") and self.chance(0.6):
                row["run_delay_ns"] = self.some(self.rng.choice([10, 40]))
            if self.chance(0.3):
                row["request"] = self.rng.choice([*self.requests, "p9"])
            self.add_segment(row)
        if self.device and self.chance(0.8):
            start = t0 + self.some(10)
            for a, b, _ in self.windows(start, start + self.some(30)):
                name = self.rng.choice(["decode", "decode", "prefill", "copy"])
                self.add_segment({"e": "segment", "step": step, "name": name, "lane": "device", "t0": a, "t1": b})

    def add_segment(self, row: Event) -> None:
        """Two windows equal in step, lane, times and name cannot be told apart: one is enough."""
        same = ("step", "lane", "t0", "t1", "name")
        if not any(all(s[k] == row[k] for k in same) for s in self.segments):
            self.segments.append(row)

    def windows(self, t0: int, t1: int, depth: int = 0) -> Iterator[tuple[int, int, int]]:
        """Windows in order inside [t0, t1), touching or apart; some hold others, some of the same extent."""
        t = t0
        for _ in range(self.rng.choice([0, 1, 2, 3, 4] if depth == 0 else [0, 0, 1, 2])):
            a = min(t + (self.some(4) if self.chance(0.6) else 0), t1)
            b = min(a + self.some(25), t1) if self.chance(0.8) else t1
            yield a, b, depth
            if self.chance(0.08):
                yield a, b, depth
            if depth < 2 and self.chance(0.35):
                yield from self.windows(a, b, depth + 1)
            t = b

    def emit(self, step: int, t: int) -> None:
        mine = [r for r in self.requests if self.chance(0.6 if self.judged else 0.75)]
        tokens = {r: self.rng.choice([1, 1, 1, 2, 4]) for r in mine}
        if self.judged and self.chance(0.9):
            others = [r for r in self.requests if r not in mine and self.chance(0.2)]
            told = mine[1:] if self.chance(0.1) else mine
            self.steps[-1]["members"] = told + others + (["p9"] if self.chance(0.3) else [])
        if not mine:
            return
        for r, n in tokens.items():
            self.stamps[r].append((t, n))
        if len(mine) > 1 and self.chance(0.2):
            first = {mine[0]: tokens.pop(mine[0])}
            self.emits.append({"e": "emit", "step": step, "t": t, "tokens": first})
        empty = [r for r in self.requests if r not in mine and self.chance(0.1)]
        self.emits.append({"e": "emit", "step": step, "t": t, "tokens": tokens | dict.fromkeys(empty, 0)})

    # --- what stops a request ------------------------------------------------------------------------------------

    def instant(self) -> int:
        """A moment of the log, mostly one at which something else happens too."""
        known = [s[k] for s in self.steps + self.segments for k in ("t0", "t1")] + [e["t"] for e in self.emits]
        if self.chance(0.6):
            return int(self.rng.choice(known))
        return self.rng.randint(min(known), max(known))

    def pauses(self) -> list[Event]:
        out: list[Event] = []
        merged: list[tuple[int, int]] = []
        stamps = [e["t"] for e in self.emits]
        for _ in range(self.rng.choice([0, 1, 2, 4])):
            a = self.instant()
            b = a + self.some(15) if self.chance(0.7) else max(a, self.instant())
            process = self.rng.choice(["engine", "engine", "worker:0", "worker:1", "api", None])
            if process in ("engine", None):
                if any(x < t < y for x, y in union([*merged, (a, b)]) for t in stamps):
                    continue
                merged.append((a, b))
            row: Event = {"e": "gc", "t0": a, "t1": b, "generation": self.rng.randint(0, 2)}
            out.append(row if process is None else row | {"process": process})
        return out

    def evictions(self, request: str) -> list[Event]:
        out: list[Event] = []
        times = sorted(self.instant() for _ in range(self.rng.choice([0, 1, 2, 4, 5])))
        opened = False
        for t in times:
            if sum(e["t"] == t for e in out) == 2:  # what three events of one instant mean, no rule says
                continue
            if opened and self.chance(0.8):
                out.append({"e": "readmit", "request": request, "t": t})
                opened = False
            else:
                mode = self.rng.choice(["swap", "recompute"])
                out.append({"e": "evict", "request": request, "t": t, "mode": mode, "lost_tokens": 0})
                opened = True
        if not opened and not out and self.chance(0.1):
            out.append({"e": "readmit", "request": request, "t": self.instant()})
        return out

    def holds(self, request: str) -> list[Event]:
        out: list[Event] = []
        for _ in range(self.rng.choice([0, 0, 1, 2])):
            a = self.instant()
            b = None if self.chance(0.1) else a + self.some(20)
            kind = self.rng.choice(["kv", "kv", "lora", "grammar"])
            out.append({"e": "hold", "request": request, "kind": kind, "t0": a, "t1": b})
        return out

    # --- before the first token and after each -------------------------------------------------------------------

    def way_in(self, request: str, body: list[Event]) -> list[Event]:
        """Nothing of a request is older than its arrival."""
        first = self.stamps[request][0][0] if self.stamps[request] else self.instant()
        mine = [
            e["t0"] if e["e"] == "hold" else e["t"] for e in body if e.get("request") == request and "name" not in e
        ]
        arrive = min([first, *mine, self.instant() if self.chance(0.6) else max(0, first - self.some(60))])
        out: list[Event] = [{"e": "arrive", "request": request, "t": arrive, "prompt_tokens": 64, "max_tokens": 99}]
        if self.chance(0.85):
            out.append({"e": "admit", "request": request, "t": min(first, arrive + self.some(40))})
        return out

    def way_out(self, request: str) -> list[Event]:
        tokens = [t for t, n in self.stamps[request] for _ in range(n)]
        out: list[Event] = []
        if self.chance(0.7):
            tokens = yield_tokens(out, self, request, "frontend", tokens)
        if self.chance(0.8):
            yield_tokens(out, self, request, "client", tokens)
        return out


def yield_tokens(out: list[Event], maker: Maker, request: str, boundary: str, tokens: list[int]) -> list[int]:
    """Deliver tokens that are ready at the given times, in bundles; returns when each left this boundary."""
    left: list[int] = []
    while len(left) < len(tokens) and not maker.chance(0.05):
        n = min(maker.rng.choice([1, 1, 2, 3]), len(tokens) - len(left))
        t = max([*left[-1:], tokens[len(left) + n - 1]]) + maker.some(8)
        left += [t] * n
        out.append({"e": "deliver", "request": request, "t": t, "tokens": n, "boundary": boundary})
        if maker.chance(0.1):
            out.append({"e": "deliver", "request": request, "t": t, "tokens": 0, "boundary": boundary})
    return left


def union(windows: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Overlapping windows as one; touching ones stay apart."""
    out: list[tuple[int, int]] = []
    for a, b in sorted(windows):
        if out and a < out[-1][1]:
            out[-1] = (out[-1][0], max(b, out[-1][1]))
        else:
            out.append((a, b))
    return out
