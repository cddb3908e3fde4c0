"""What the hooks of SGLang's scheduler noted: who was in a batch, which tokens each got, who came and who is done.

A batch that decodes goes on from step to step. Each request keeps its answer as it grows: what it got is by how much
that grew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from stallbook.notes.sglang_steps import Overlapped
from stallbook.notes.words import BY_BUDGET, BY_KV, OWN, Told, Words, settings_of

__all__ = [
    "COMES_IN", "EMITTED", "GONE", "IDLE", "NAMES", "PLANNED", "RAN", "REPEATED", "RETRACTED", "Batch", "Teller",
    "noted",
]  # fmt: skip

NAMES = ("loop", "sched", "output", "dispatch")
PLANNED, COMES_IN, RAN, EMITTED, REPEATED, RETRACTED, GONE, IDLE = range(OWN, OWN + 8)
"""A step was scheduled: number, start, end, CPU time after a rest or -1.
Requests that a step prefills: when; how many, and their handles.
The path that a forward pass took, where there are several: number, graph code, padded size.
A result was processed, number, start, end and CPU time, of a batch: see `Batch`.
The same of the batch before, each of whose requests got one token.
A request lost its cache: handle, tokens, when.
It was given up: handle, when.
Nothing is left to do.
"""


class Batch(NamedTuple):
    """A batch whose result was processed, as it is noted: width and decoding; -1 or how many chunks; how many requests,
    and how many of them ended; then each of the lists.

    width: tokens of each that were decoded, drafts included. decoding: how many of its requests decoded in a pass that
    prefilled. requests: a number below zero for one that is not recorded, or that was done before and whose row was
    still in flight. lengths: of their answers, now. ended: who is done. chunks: prompt tokens of each request.
    """

    width: int
    decoding: int
    requests: Sequence[int]
    lengths: Sequence[int]
    ended: Sequence[int]
    chunks: Sequence[int] | None

    @classmethod
    def of(cls, notes: Words) -> Batch:
        """The next of the notes."""
        width, decoding, chunks, count, ended = notes.some(5)
        lists = (notes.some(n) for n in (count, count, ended, max(chunks, 0)))
        requests, lengths, done, each = lists
        return cls(width, decoding, requests, lengths, done, each if chunks >= 0 else None)


_NOBODY = Batch(1, 0, (), (), (), None)


class Teller(Told):
    """Follows requests from batch to batch, and tells the steps. chunk: `chunked_prefill_size`, 0 for none."""

    steps: Overlapped

    def __init__(self, settings: Mapping[str, Any]) -> None:
        records = settings_of(settings)
        super().__init__(records, Overlapped(records))
        self.chunk = int(settings["chunk"])
        self.kinds |= {
            PLANNED: (4, self.steps.planned), COMES_IN: (-1, self._comes_in), RAN: (3, self.steps.ran),
            EMITTED: (-1, self._emitted), REPEATED: (4, self._repeated), RETRACTED: (3, self.steps.evict),
            GONE: (2, self._gone), IDLE: (0, self.steps.rests),
        }  # fmt: skip
        self._known: dict[int, int] = {}
        """The length of each request's answer, as far as its tokens are told: before the steps that `_again` counts."""
        self._last = _NOBODY
        self._whole = False
        """Whether the last batch decoded one token of each of its requests, all of which are recorded."""
        self._again = 0
        """So many steps came after it that were like it."""
        self._budget = -1
        """Prompt tokens of the last prefill."""

    def blocked(self, code: int) -> int:
        """Blocks are short, unless the last prefill took all tokens that one may take."""
        return BY_BUDGET if code == BY_KV and self.chunk and self._budget >= self.chunk else code

    def lost(self) -> None:
        """Some notes could not be told."""
        super().lost()
        self._last, self._whole, self._again = _NOBODY, False, 0

    def _comes_in(self, notes: Words) -> None:
        t, steps, known, fresh = notes.one(), self.steps, self._known, list[int]()
        for one in notes.listed():
            if one in steps.alive and (one not in known or one in steps.evicted):
                known.setdefault(one, 0)
                fresh.append(one)
        steps.admitted(fresh, t)

    def _gone(self, request: int, t: int) -> None:
        self._left([request], t)

    def _left(self, requests: Sequence[int], t: int) -> None:
        """Requests are done, or were given up."""
        self._catch_up()
        for one in requests:
            self._known.pop(one, None)
        self.steps.finished(requests, t)

    def _repeated(self, number: int, t: int, t1: int, cpu: int) -> None:
        if self._whole:
            self._again += 1
            self.steps.repeated(number, t, t1, cpu)
        else:
            lengths = [length + 1 for length in self._last.lengths]
            self._batch(number, self._last._replace(lengths=lengths, ended=()), t, t1, cpu)

    def _emitted(self, notes: Words) -> None:
        number, t, t1, cpu = notes.some(4)
        self._batch(number, Batch.of(notes), t, t1, cpu)

    def _batch(self, number: int, one: Batch, t: int, t1: int, cpu: int) -> None:
        """The step of that number emitted at `t`."""
        self._catch_up()
        self._last, count = one, len(one.requests)
        tokens, scheduled = self._look(one)
        total = sum(one.chunks) if one.chunks is not None else count * one.width
        self._budget = 0 if one.chunks is None else total - one.decoding
        if self.steps.alive:  # even where all of its requests are gone by now: others waited meanwhile
            whole = one.chunks is None and one.width == 1 and len(tokens) == count == sum(tokens.values())
            landed = self.steps.emitted(number, t, t1, cpu, scheduled, total, tokens, total - self._budget)
            self._whole = whole and landed
        else:
            self.steps.dropped(number, t1, cpu)
        if one.ended:
            self._left([request for request in one.ended if request in self.steps.alive], t1)

    def _catch_up(self) -> None:
        """What follows is not like the last step."""
        if self._again:
            one, again = self._last, self._again
            self._last = one = one._replace(lengths=[length + again for length in one.lengths])
            self._known.update(zip(one.requests, one.lengths, strict=True))
        self._again, self._whole = 0, False

    def _look(self, one: Batch) -> tuple[Mapping[int, int], Mapping[int, int]]:
        """What each request got, and what of each was in the batch: request by request."""
        known, alive, evicted = self._known, self.steps.alive, self.steps.evicted
        tokens: dict[int, int] = {}
        scheduled: dict[int, int] = {}
        for i, (request, length) in enumerate(zip(one.requests, one.lengths, strict=True)):
            if request not in alive:
                continue
            if (got := length - known.get(request, 0)) > 0:
                tokens[request] = got
            known[request] = length
            if got > 0 or (one.chunks is not None and request not in evicted):
                scheduled[request] = one.width if one.chunks is None else one.chunks[i]
        return tokens, scheduled


def noted(batch: Batch) -> Iterable[int]:
    """A batch as it is noted."""
    width, decoding, requests, lengths, ended, chunks = batch
    head = width, decoding, -1 if chunks is None else len(chunks), len(requests), len(ended)
    return *head, *requests, *lengths, *ended, *(chunks or ())
