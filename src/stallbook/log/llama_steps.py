"""From the messages of llama.cpp's server to steps, their segments, and what each request got.

A step is one pass of the server's loop, from `posting NEXT_RESPONSE` to the next. Its thread is named throughout:

    sched    the batch is put together
    decode   the forward pass: from the hand-over to the thread that computes until it is back
    sample   tokens are sampled, one slot after another, and handed to the threads that send them
    loop     between two passes: new requests are taken in
    cache    prompts are saved to the prompt cache, and looked up in it, meanwhile
    kv       a pass that found no free cells, and what came of it
    draft    tokens are drafted

The forward pass's end is the emission. Where a batch is larger than a pass takes, each pass is a step.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from typing import Final

from stallbook.log.draft import Draft
from stallbook.log.llama_pass import Pass, Row
from stallbook.log.llama_rules import RULES
from stallbook.log.llama_tasks import Tasks
from stallbook.run import BY_SEQS, NOT_BLOCKED, UNKNOWN

__all__ = ["Steps"]

_MODULE: Final = re.compile(rb"(srv|slot|que|res) +[^:]+: (?:id +-?\d+ \| task (-?\d+) \| )?")
_FULL: Final = b"Context size has been exceeded"
_STEPS: Final = ("id", "t0", "t1", "decode_tokens", "prefill_tokens", "kv_tokens", "blocked")


class Steps:
    """Takes messages one by one, and fills a draft."""

    def __init__(self, draft: Draft) -> None:
        self._draft, self._tasks = draft, Tasks(draft)
        self.failed: Counter[str] = Counter()
        """Requests that the server gave up, by what it said."""
        self._steps = {name: array("q") for name in _STEPS}
        self._lines = array("q")
        self._segments = {name: array("q") for name in ("step", "name", "t0", "t1")}
        self._emits = {name: array("q") for name in ("step", "t", "request", "tokens")}
        self._members = {name: array("q") for name in ("step", "request")}
        self._pass: Pass | None = None
        self._unsure: Counter[int] = Counter()
        """Steps with prompt tokens whose number no message told yet."""
        self._last = 0

    @property
    def launched(self) -> int:
        """The line of the first request that was begun; 0: none was."""
        return self._tasks.first_line

    @property
    def tokens(self) -> int:
        """So many tokens were emitted."""
        return self._tasks.tokens

    def take(self, line: int, t: int, text: bytes) -> bool:
        """A message; whether it was one of those that count."""
        begin = _MODULE.match(text)
        if begin is None:
            return False
        message = text[begin.end() :]
        garbled = False
        for rule in RULES[begin[1]].get(message.split(b" ", 1)[0], ()):
            if message.startswith(rule.begin):
                if found := rule.rest.match(message, len(rule.begin)):
                    self._last = t
                    owner = [] if begin[2] is None else [int(begin[2])]
                    numbers = [int(w) if w and w.lstrip(b"-").isdigit() else w for w in found.groups()]
                    getattr(self, f"_{rule.name}")(t, line, *owner, *numbers)
                    return True
                garbled |= rule.sure
        self._draft.notes["garbled_lines"] += garbled
        return garbled

    def close(self) -> None:
        """The log ends here: hand all over to the draft."""
        self._end(self._last)
        for row in self._unsure:
            self._steps["prefill_tokens"][row] = -1
        self._tasks.close()
        self._draft.extend("steps", self._steps, self._lines)
        self._draft.extend("segments", self._segments)
        self._draft.extend("emits", self._emits)
        self._draft.extend("members", self._members)
        self._draft.notes["failed_requests"] += sum(self.failed.values())

    # The server's loop

    def _step(self, t: int, line: int) -> None:
        self._end(t)
        self._pass = Pass(t, line)

    def _idle(self, t: int, line: int) -> None:
        self._end(t)

    def _batch(self, t: int, line: int, width: int, off: int) -> None:
        at = self._pass or Pass(t, line)
        if at.width and off > at.off:  # the pass before took a part of the batch
            rows = at.rows
            for row in rows:
                row.split = row.prompt < 0
            self._end(t)
            at = Pass(t, line, rows)
        self._pass = at
        at.begin(t, width, off)

    def _yield(self, t: int, line: int) -> None:
        if self._pass:
            self._pass.enter("decode" if self._pass.waits else "draft", t)

    def _done(self, t: int, line: int) -> None:
        if self._pass:
            self._pass.back(t)

    def _retry(self, t: int, line: int) -> None:
        self._draft.notes["kv_full_retries"] += 1
        if self._pass:
            self._pass.failed(t)

    def _purge(self, t: int, line: int) -> None:
        self._draft.notes["kv_full_purged_slots"] += 1

    def _shift(self, t: int, line: int, task: int) -> None:
        self._draft.notes["context_shifts"] += 1

    def _speed(self, t: int, line: int, task: int) -> None:
        """How fast a request goes, now and then: nothing new."""

    def _error(self, t: int, line: int, task: int, what: bytes) -> None:
        self.failed[_kind(what)] += 1
        if self._pass and what.startswith(_FULL):
            self._pass.failed(t)

    def _defer(self, t: int, line: int, task: int) -> None:
        self._tasks.deferred.add(task)

    def _loop(self, t: int, line: int) -> None:
        if self._pass and self._pass.name != "loop":
            self._pass.enter("loop", t)

    def _cache(self, t: int, line: int, *_: int) -> None:
        if self._pass and self._pass.name == "loop":
            self._pass.enter("cache", t)

    def _cached(self, t: int, line: int, *_: int) -> None:
        if self._pass and self._pass.name == "cache":
            self._pass.enter("loop", t)

    # Requests

    def _arrive(self, t: int, line: int, task: int, of: bytes | None) -> None:
        if of:  # else one that the loop posts to itself
            self._tasks.arrived[task] = t

    def _launch(self, t: int, line: int, task: int) -> None:
        self._tasks.launch(task, line)

    def _prompt(self, t: int, line: int, task: int, size: int) -> None:
        one = self._tasks.get(task, line)
        one.admit, one.prompt = t, size

    def _chunk(self, t: int, line: int, task: int, there: int) -> None:
        one = self._tasks.get(task, line)
        self._filled(t, line, task, there)
        row = Row(one.request, prompt=-1)
        self._now(t, line).rows.append(row)
        one.chunk = (len(self._lines), there, row)

    def _filled(self, t: int, line: int, task: int, there: int) -> None:
        """So much of a prompt is in the batch, or was after the step before: what its part was is known."""
        one = self._tasks.get(task, line)
        if one.chunk is None:
            return
        step, before, row = one.chunk
        row.prompt = there - before
        one.chunk = None
        if self._unsure[step] and not row.split:  # that step was closed
            self._steps["prefill_tokens"][step] += row.prompt
            self._unsure[step] -= 1
            if not self._unsure[step]:
                del self._unsure[step]

    def _decode(self, t: int, line: int, task: int, there: int) -> None:
        self._now(t, line).rows.append(Row(self._tasks.get(task, line).request, 1, there + 1))

    def _draft_tokens(self, t: int, line: int, task: int, there: int, drafted: int) -> None:
        one = self._tasks.get(task, line)
        self._now(t, line).rows.append(Row(one.request, drafted + 1, there + drafted + 1))

    def _token(self, t: int, line: int, task: int, count: int, left: int) -> None:
        one, at = self._tasks.get(task, line), self._now(t, line)
        if at.done == UNKNOWN:  # an older server does not say when the pass was back
            at.back(max(one.sent, at.since) if one.sent != UNKNOWN else t)
            at.done = at.since
        if new := self._tasks.token(one, count, left, at.done):
            at.tokens[one.request] = at.tokens.get(one.request, 0) + new

    def _send(self, t: int, line: int, task: int) -> None:
        self._tasks.send(task, t)

    def _release(self, t: int, line: int, task: int, truncated: int) -> None:
        self._tasks.release(task, t)

    # Writing

    def _now(self, t: int, line: int) -> Pass:
        if self._pass is None:
            self._pass = Pass(t, line)
        return self._pass

    def _end(self, t: int) -> None:
        """Write the pass under way; it ended here."""
        at, self._pass = self._pass, None
        if at is None:
            return
        row = len(self._lines)
        rows = list(at.view())
        if unsure := sum(one.prompt < 0 for one in rows):
            self._unsure[row] = unsure
        told = (
            row, at.t0, t, sum(one.decode for one in rows), sum(max(one.prompt, 0) for one in rows),
            sum(one.kv for one in rows), BY_SEQS if self._tasks.deferred else NOT_BLOCKED,
        )  # fmt: skip
        for column, value in zip(self._steps.values(), told, strict=True):
            column.append(value)
        self._lines.append(at.line)
        for name, t0, t1 in at.ended(t):
            _append(self._segments, row, self._draft.name(name), t0, t1)
        for one in rows if at.width else ():
            _append(self._members, row, one.request)
        for request, tokens in at.tokens.items():
            _append(self._emits, row, at.done, request, tokens)


def _kind(what: bytes) -> str:
    """What went wrong, without numbers, and without what may be of the request: what is quoted, or follows a colon."""
    words = re.split(rb"[:'\"`]", what, maxsplit=1)[0].decode(errors="replace")
    return re.sub(r"\d+", "N", words).strip()[:80]


def _append(columns: dict[str, array[int]], *values: int) -> None:
    for column, value in zip(columns.values(), values, strict=True):
        column.append(value)
