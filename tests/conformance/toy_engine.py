"""A toy serving engine that knows nothing of stallbook: requests are lines of JSON on stdin, answers on stdout."""

from __future__ import annotations

import json
import queue
import sys
import threading
from collections import deque
from dataclasses import dataclass
from typing import Any

BLOCK, BLOCKS, MOST = 16, 28, 8
WORK = 200_000
"""A forward pass costs so many turns of a loop, and a fiftieth of it for each token."""


@dataclass(eq=False)
class Request:
    name: str
    prompt: int
    limit: int
    tokens: int = 0
    blocks: int = 0

    @property
    def length(self) -> int:
        return self.prompt + self.tokens


class Engine:
    """Schedules, runs, emits. A request that finds no block for its next token loses all of its own."""

    def __init__(self) -> None:
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.free = BLOCKS
        self.counted = {"tokens": 0, "preemptions": 0}

    def add(self, request: Request) -> None:
        self.waiting.append(request)

    def step(self) -> bool:
        batch = self.schedule()
        if batch:
            self.forward(batch)
            self.output(batch)
        return bool(batch)

    def schedule(self) -> list[tuple[Request, int]]:
        """Who is in the next batch, with how many tokens: one to decode, or a prompt to compute."""
        batch: list[tuple[Request, int]] = []
        for request in list(self.running):
            while request in self.running and not self.grow(request):
                self.preempt(self.running[-1])
        batch += [(request, 1) for request in self.running]
        while self.waiting and len(self.running) < MOST and self.grow(self.waiting[0]):
            request = self.waiting.popleft()
            self.running.append(request)
            batch.append((request, request.length))
        return batch

    def grow(self, request: Request) -> bool:
        """Room for one token more."""
        wanted = request.length // BLOCK + 1 - request.blocks
        if wanted > self.free:
            return False
        self.free -= wanted
        request.blocks += wanted
        return True

    def preempt(self, request: Request) -> None:
        self.counted["preemptions"] += 1
        self.running.remove(request)
        self.release(request)
        self.waiting.appendleft(request)

    def release(self, request: Request) -> None:
        self.free, request.blocks = self.free + request.blocks, 0

    def forward(self, batch: list[tuple[Request, int]]) -> None:
        """Stands for a model."""
        total = 0
        for n in range(WORK + WORK // 50 * sum(count for _, count in batch)):
            total += n

    def output(self, batch: list[tuple[Request, int]]) -> None:
        for request, _ in batch:
            request.tokens += 1
            self.counted["tokens"] += 1
            if request.tokens == request.limit:
                self.finish(request)

    def finish(self, request: Request) -> None:
        self.running.remove(request)
        self.release(request)
        print(json.dumps({"name": request.name, "tokens": request.tokens}), flush=True)


def main() -> None:
    """Serve until stdin ends; a line `null` asks for the engine's own counts."""
    engine, lines = Engine(), queue.Queue[str]()

    def read() -> None:
        for line in sys.stdin:
            lines.put(line)
        lines.put("")

    threading.Thread(target=read, daemon=True).start()
    print("ready", flush=True)
    busy = False
    while True:
        while not busy or not lines.empty():
            line = lines.get()
            if not line:
                return
            told: dict[str, Any] | None = json.loads(line)
            if told is None:
                print(json.dumps(engine.counted), flush=True)
            else:
                engine.add(Request(told["name"], told["prompt"], told["limit"]))
            busy = busy or told is not None
        busy = engine.step()


if __name__ == "__main__":
    main()
