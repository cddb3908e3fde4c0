"""SGLang's batches: who was in one, which tokens each got, who came and who is done.

A batch that decodes is one object from step to step, and is changed in place; what a step's own result stands for is
noted once it is processed. Each request keeps its answer as it grows: what it got is by how much that grew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from stallbook.adapters.sglang.steps import Overlapped

__all__ = ["Batches", "Told", "Wait", "Watch", "wait_of"]


class Wait:
    """An event of a device's that is waited for before a result is read: says when it was over."""

    __slots__ = ("_clock", "_event", "t")

    def __init__(self, event: Any, clock: Callable[[], int]) -> None:
        self._event, self._clock, self.t = event, clock, 0

    def synchronize(self) -> None:
        """Wait for it."""
        self._event.synchronize()
        self.t = self.t or self._clock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._event, name)


def wait_of(result: Any, clock: Callable[[], int]) -> Wait | None:
    """Stands in for the event that this result waits for, from now on; None where it waits for none."""
    event = getattr(result, "copy_done", None)
    if event is None:
        return None
    wait = result.copy_done = Wait(event, clock)
    return wait


class Told(NamedTuple):
    """A batch whose result was processed.

    rids: of its requests; "" for one that was done before, and whose row was still in flight. lengths: of the answers,
    now. ended: who is done. chunks: prompt tokens of each request, where it prefilled; else None. decoding: how many of
    its requests decoded in the same pass. width: tokens of each that were decoded, drafts included.
    """

    rids: Sequence[str]
    lengths: Sequence[int]
    ended: Sequence[str]
    chunks: Sequence[int] | None
    decoding: int
    width: int


class Watch:
    """Looks at each batch once its result is processed, while all of it is in the cache, and keeps nothing of it.

    What the engine made for a step would be cold later, and freed cold.
    """

    __slots__ = ("_ended", "_total", "requests")

    def __init__(self) -> None:
        self.requests: Sequence[Any] = ()
        """Of the last batch, if it decoded and nobody ended in it."""
        self._total = 0
        """The lengths of their answers by now, added up."""
        self._ended: Sequence[Any] = ()
        """Who was done in the batch before."""

    def look(self, batch: Any, result: Any) -> Told | None:
        """What there is to tell; None if the same requests decoded as the last time, and each got a token."""
        requests, total, goes_on = batch.reqs, 0, True
        for one in requests:
            total += len(one.output_ids)
            if one.finished_reason is not None:
                goes_on = False
        extends, drafts = batch.forward_mode.is_extend(), getattr(result, "speculative_num_draft_tokens", None)
        usual = goes_on and not extends and not drafts
        if usual and requests == self.requests and total == self._total + len(requests):
            self._total = total
            return None
        self.requests, self._total = (requests[:], total) if usual else ((), 0)
        return self._told(batch, extends, drafts or 1)

    def clear(self) -> None:
        """The engine rests: let go of what was its."""
        self.requests = self._ended = ()

    def _told(self, batch: Any, extends: bool, width: int) -> Told:
        before, self._ended = self._ended, [one for one in batch.reqs if one.finished_reason is not None]
        rids = [one.rid for one in batch.reqs]
        for i, one in enumerate(batch.reqs if before else ()):
            if any(one is other for other in before):
                rids[i] = ""
        chunks, decoding = None, 0
        if extends:
            chunks, decoding = batch.extend_lens, len(getattr(batch, "decoding_reqs", None) or ())
        ended = [one.rid for one in self._ended if not any(one is other for other in before)]
        return Told(rids, [_length(one) for one in batch.reqs], ended, chunks, decoding, width)


def _length(request: Any) -> int:
    """Of its answer; what was drafted beyond its end is cut off."""
    most, length = getattr(request, "finished_len", None), len(request.output_ids)
    return length if most is None else min(length, most)


class Batches:
    """Follows requests from batch to batch, and tells the steps."""

    def __init__(self, steps: Overlapped) -> None:
        self.steps = steps
        self._known: dict[str, int] = {}
        """The length of each request's answer, as far as its tokens are told: before the steps that `_again` counts."""
        self._last = Told((), (), (), None, 0, 1)
        self._whole = False
        """Whether the last batch decoded one token of each of its requests, all of which are recorded."""
        self._again = 0
        """So many steps came after it that were like it."""

    def admitted(self, requests: Iterable[str], t: int) -> None:
        """Requests are in a batch that prefills."""
        steps, known = self.steps, self._known
        fresh = []
        for rid in requests:
            handle = steps.handles.get(rid)
            if handle is not None and (rid not in known or handle in steps.evicted):
                known.setdefault(rid, 0)
                fresh.append(rid)
        steps.admitted(fresh, t)

    def left(self, requests: Sequence[str], t: int) -> None:
        """Requests are done, or were given up."""
        self._catch_up()
        for one in requests:
            self._known.pop(one, None)
        self.steps.finished(requests, t)

    def repeated(self, number: int, t: int, t1: int, cpu: int) -> None:
        """The step of that number emitted at `t`: of the same requests as the last one, each of which got a token."""
        if self._whole:
            self._again += 1
            self.steps.repeated(number, t, t1, cpu)
        else:
            lengths = [length + 1 for length in self._last.lengths]
            self.emitted(number, self._last._replace(lengths=lengths, ended=()), t, t1, cpu)

    def emitted(self, number: int, one: Told, t: int, t1: int, cpu: int) -> int:
        """The step of that number emitted at `t`. Returns how many prompt tokens were in it."""
        self._catch_up()
        self._last, count = one, len(one.rids)
        tokens, scheduled = self._look(one)
        total = sum(one.chunks) if one.chunks is not None else count * one.width
        prompts = 0 if one.chunks is None else total - one.decoding
        if self.steps.handles:  # even where all of its requests are gone by now: others waited meanwhile
            self.steps.emitted(number, t, t1, cpu, scheduled, total, tokens, total - prompts)
            self._whole = one.chunks is None and one.width == 1 and len(tokens) == count == sum(tokens.values())
        else:
            self.steps.dropped(number, t1, cpu)
        if one.ended:
            self.left([rid for rid in one.ended if rid in self.steps.handles], t1)
        return prompts

    def _catch_up(self) -> None:
        """What follows is not like the last step."""
        if self._again:
            one, again = self._last, self._again
            self._last = one = one._replace(lengths=[length + again for length in one.lengths])
            self._known.update(zip(one.rids, one.lengths, strict=True))
        self._again, self._whole = 0, False

    def _look(self, one: Told) -> tuple[dict[str, int], dict[str, int]]:
        """What each request got, and what of each was in the batch: request by request."""
        known, handles, evicted = self._known, self.steps.handles, self.steps.evicted
        tokens: dict[str, int] = {}
        scheduled: dict[str, int] = {}
        for i, (rid, length) in enumerate(zip(one.rids, one.lengths, strict=True)):
            if (handle := handles.get(rid)) is None:
                continue
            if (got := length - known.get(rid, 0)) > 0:
                tokens[rid] = got
            known[rid] = length
            if got > 0 or (one.chunks is not None and handle not in evicted):
                scheduled[rid] = one.width if one.chunks is None else one.chunks[i]
        return tokens, scheduled
