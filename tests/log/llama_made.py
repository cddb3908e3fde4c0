"""Logs as llama.cpp's server writes them, made up: a server of slots whose passes take what they are told to."""

from __future__ import annotations

import gzip
import random
from dataclasses import dataclass, field
from pathlib import Path

FLAVOURS = ("new", "old")
"""As builds of autumn 2026 spell their messages, and as those of a year before did."""


@dataclass
class Told:
    """What the log has to be read as."""

    steps: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    """Start, end, emission (-1: none), decode rows, prompt tokens."""
    tokens: dict[str, list[int]] = field(default_factory=dict)
    """When each token of a request was emitted."""
    handed: dict[str, list[int]] = field(default_factory=dict)
    prompts: dict[str, int] = field(default_factory=dict)


@dataclass
class _Slot:
    task: int
    prompt: int
    limit: int
    there: int = 0
    count: int = 0


class Made:
    """A server's log under way. All times are microseconds."""

    def __init__(self, flavour: str = "new", colour: bool = False, text: str = " ka") -> None:
        self.flavour, self.colour, self.text = flavour, colour, text
        self.now = 1000
        self.lines: list[str] = []
        self.told = Told()
        self.slots: dict[int, _Slot] = {}
        self.numbers = 0
        self.say("srv", "init", "build_info: b11549-0a1b2c3d4", "I")
        self.say("srv", "load_model", "initializing, n_slots = 4, n_ctx_slot = 4096, kv_unified = 'true'", "I")

    def say(self, who: str, function: str, message: str, level: str = "D", after: int = 3) -> int:
        """One message; when it was stamped."""
        self.now += after
        micro = self.now
        stamp = f"{micro // 60_000_000}.{micro // 1_000_000 % 60:02}.{micro // 1000 % 1000:03}.{micro % 1000:03}"
        if self.colour:
            stamp, level, message = f"\x1b[34m{stamp}\x1b[0m", f"\x1b[33m{level}", f"{message}\x1b[0m"
        self.lines.append(f"{stamp} {level} {who:<4} {function[:12]:>12}: {message}")
        return micro

    def arrive(self, prompt: int, limit: int) -> int:
        """A request comes in; its number."""
        task, self.numbers = self.numbers, self.numbers + 1
        self.say("que", "post", f"new task, id = {task}/1, front = 0")
        self.slots[-1 - task] = _Slot(task, prompt, limit)
        self.told.prompts[f"task-{task}"] = prompt
        return task

    def launch(self) -> None:
        """What came in gets slots."""
        self.say("que", "start_loop", "processing new tasks")
        for key in [key for key in self.slots if key < 0]:
            free = next(i for i in range(99) if i not in self.slots)
            slot = self.slots[free] = self.slots.pop(key)
            self.say("que", "process_new_", f"processing task, id = {slot.task}")
            self.say("slot", "launch_slot_", f"id {free:2} | task {slot.task} | processing task, is_child = 0", "I")
        self.say("que", "start_loop", "update slots")

    def step(self, budget: int, compute: int = 2000, fails: int = 0) -> None:
        """A pass of the loop: everyone's last token and as much of the prompts as the budget leaves."""
        begin = self.say("srv", "update_slots", "posting NEXT_RESPONSE")
        self.close(begin)
        self.say("que", "post", f"new task, id = {self.numbers}, front = 0")
        self.numbers += 1
        decode = [i for i, slot in sorted(self.slots.items()) if slot.count and slot.there >= slot.prompt]
        for i in decode:
            slot = self.slots[i]
            told = f"n_ctx = 4096, n_tokens = {slot.there}, truncated = 0"
            self.say("slot", "handle_last_", f"id {i:2} | task {slot.task} | slot decode token, id=7, {told}")
            slot.there += 1
        left, done = budget - len(decode), list(decode)
        prompts = 0
        for i, slot in sorted(self.slots.items()):
            if slot.there < slot.prompt and left > 0:
                size = self._chunk(i, slot, left)
                left, prompts = left - size, prompts + size
                done += [i] * (slot.there == slot.prompt)
        self._passes(budget, compute, fails)
        stamp = self.now
        self.told.steps.append((begin, -1, stamp if done else -1, len(decode), prompts))
        for i in sorted(done):
            self._token(i, stamp)
        self.say("que", "start_loop", "waiting for new tasks")

    def _chunk(self, i: int, slot: _Slot, left: int) -> int:
        who = f"id {i:2} | task {slot.task} | "
        if slot.there == 0:
            told = f"new prompt, n_ctx_slot = 4096, n_keep = 0, task.n_tokens = {slot.prompt}"
            self.say("slot", "operator()", who + told, "I")
        self.say("slot", "operator()", who + f"cached n_tokens = {slot.there}, memory_seq_rm [{slot.there}, end)", "I")
        size = min(left, slot.prompt - slot.there)
        slot.there += size
        if self.flavour == "old":
            told = f"prompt processing progress, n_tokens = {slot.there}, batch.n_tokens = {size}, progress = 1.000000"
            self.say("slot", "update_slots", who + told, "I")
        elif slot.there == slot.prompt:
            told = f"init sampler, took 0.01 ms, tokens: text = {slot.there}, total = {slot.there}"
            self.say("slot", "init_sampler", who + told, "I")
        return size

    def _passes(self, budget: int, compute: int, fails: int) -> None:
        """The forward pass, at once or after some that found no room, each of which cleared an idle slot."""
        for attempt in range(fails + 1):
            self.say("srv", "decode", f"n_batch (effective) = {budget}, off = 0")
            if self.flavour == "new":
                self.say("que", "yield_to_que", "yielding to queue")
                self.say("que", "yield_to_que", "done yielding to queue", after=compute)
            if attempt < fails:
                told = "failed to find free space in the KV cache, retrying with smaller batch size, off = 0, "
                self.say("srv", "try_clear_id", "purging slot 3 with 12 tokens", "W")
                self.say("srv", "decode", f"{told}n_batch = {budget}, ret = 1", "W")
        if self.flavour == "old":
            self.now += compute

    def _token(self, i: int, stamp: int) -> None:
        slot = self.slots[i]
        name = f"task-{slot.task}"
        slot.count += 1
        handed = self.say("res", "send", f"sending result for task id = {slot.task}", after=40)
        self.told.handed.setdefault(name, []).append(handed)
        if self.flavour == "old" and self.told.steps[-1][2] == stamp:  # the first token says that the pass is back
            self.told.steps[-1] = (*self.told.steps[-1][:2], handed, *self.told.steps[-1][3:])
        self.told.tokens.setdefault(name, []).append(self.told.steps[-1][2])
        self.say("srv", "operator()", f'http: streamed chunk: data: {{"content":"{self.text}"}}\n\n')
        word = "n_gen" if self.flavour == "new" else "n_decoded"
        left = slot.limit - slot.count
        told = f"{word} = {slot.count}, n_remaining = {left}, next token:   300 '{self.text}'"
        self.say("slot", "process_toke", f"id {i:2} | task {slot.task} | {told}")
        if slot.count % 5 == 0:
            told = f"{word} = {slot.count:6}, tg =  50.00 t/s, tg_3s =  50.00 t/s"
            self.say("slot", "print_timing", f"id {i:2} | task {slot.task} | {told}", "I")
        if not left:
            told = f"stop processing: n_tokens = {slot.there}, truncated = 0"
            self.say("slot", "release", f"id {i:2} | task {slot.task} | {told}", "I")
            del self.slots[i]

    def close(self, t: int) -> None:
        """The step before ended."""
        if self.told.steps and self.told.steps[-1][1] < 0:
            self.told.steps[-1] = (self.told.steps[-1][0], t, *self.told.steps[-1][2:])

    def idle(self) -> None:
        """Nothing is left to do."""
        self.close(self.say("srv", "update_slots", "all slots are idle", "I"))

    def write(self, path: Path) -> Path:
        """As a file, gzipped if its name says so."""
        data = "".join(line + "\n" for line in self.lines).encode()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
        return path


def served(rng: random.Random, flavour: str = "new", text: str = " ka", requests: int = 6) -> Made:
    """A server that was given requests now and then, until all were done."""
    made, left, budget = Made(flavour, text=text), requests, rng.choice((16, 64, 512))
    while left or made.slots:
        while left and (not made.slots or rng.random() < 0.2):
            made.arrive(rng.randint(1, 200), rng.randint(1, 12))
            left -= 1
        made.launch()
        made.step(budget, rng.randint(100, 90_000_000 if rng.random() < 0.02 else 5000), rng.random() < 0.05)
    made.idle()
    return made
