"""SGLang's batches: who was in one, which tokens each got, who came and who is done.

A batch that decodes is one object from step to step, and is changed in place; what a step's own result stands for is
noted once it is processed. Each request keeps its answer as it grows: what it got is by how much that grew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from stallbook.adapters.sglang.steps import Overlapped

__all__ = ["Batches", "Told", "Wait", "told", "wait_of"]


_UNUSUAL: Final[tuple[Sequence[Any], Sequence[int], dict[str, int]]] = ((), (), {})


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

    chunks: prompt tokens of each request, where it prefilled; else None. decoding: how many of its requests decoded in
    the same pass. width: tokens of each that were decoded, drafts included. lengths: of the answers, now.
    """

    chunks: Sequence[int] | None
    decoding: int
    width: int
    requests: Sequence[Any]
    lengths: Sequence[int]


def told(batch: Any, result: Any) -> Told:
    """Note a batch, in the midst of a step."""
    requests = batch.reqs
    chunks, decoding = None, 0
    if batch.forward_mode.is_extend():
        chunks, decoding = batch.extend_lens, len(getattr(batch, "decoding_reqs", None) or ())
    width = getattr(result, "speculative_num_draft_tokens", None) or 1
    return Told(chunks, decoding, width, requests[:], [len(one.output_ids) for one in requests])


class Batches:
    """Follows requests from batch to batch, and tells the steps."""

    def __init__(self, steps: Overlapped) -> None:
        self.steps = steps
        self._known: dict[str, int] = {}
        """The length of each request's answer, as far as its tokens are told; while `_usual` holds, before that."""
        self._usual: tuple[Sequence[Any], Sequence[int], dict[str, int]] = _UNUSUAL
        """Of a decode in which each request got one token: the requests, the lengths, and one for each."""

    def admitted(self, requests: Iterable[Any], t: int) -> None:
        """Requests are in a batch that prefills."""
        steps, known = self.steps, self._known
        fresh = []
        for one in requests:
            handle = steps.handles.get(one.rid)
            if handle is not None and (one.rid not in known or handle in steps.evicted):
                known.setdefault(one.rid, 0)
                fresh.append(one.rid)
        steps.admitted(fresh, t)

    def left(self, requests: Sequence[str], t: int) -> None:
        """Requests are done, or were given up."""
        self._catch_up()
        for one in requests:
            self._known.pop(one, None)
        self.steps.finished(requests, t)

    def emitted(self, number: int, one: Told, t: int, t1: int, cpu: int) -> int:
        """The step of that number emitted at `t`. Returns how many prompt tokens were in it."""
        requests, lengths = one.requests, one.lengths
        before, were, scheduled = self._usual
        if one.chunks is None and one.width == 1 and requests == before and _grown(lengths, were):
            tokens, total = scheduled, len(requests)
        else:
            self._catch_up()
            tokens, scheduled = self._look(one)
            total = sum(one.chunks) if one.chunks is not None else len(requests) * one.width
        whole = one.chunks is None and one.width == 1 and len(tokens) == len(requests)
        self._usual = (requests, lengths, scheduled) if whole else _UNUSUAL
        prompts = 0 if one.chunks is None else total - one.decoding
        if self.steps.handles:  # even where all of its requests are gone by now: others waited meanwhile
            self.steps.emitted(number, t, t1, cpu, scheduled, total, len(tokens), tokens, total - prompts)
        else:
            self.steps.dropped(number, t1, cpu)
        if [one for one in requests if one.finished_reason is not None]:
            both = zip(requests, lengths, strict=True)
            self.left([r.rid for r, n in both if r.rid in self.steps.handles and _last(r, n)], t1)
        return prompts

    def _catch_up(self) -> None:
        """What follows is not usual."""
        _, lengths, scheduled = self._usual
        self._known.update(zip(scheduled, lengths, strict=True))
        self._usual = _UNUSUAL

    def _look(self, one: Told) -> tuple[dict[str, int], dict[str, int]]:
        """What each request got, and what of each was in the batch: request by request."""
        known, handles, evicted = self._known, self.steps.handles, self.steps.evicted
        tokens: dict[str, int] = {}
        scheduled: dict[str, int] = {}
        for i, (request, length) in enumerate(zip(one.requests, one.lengths, strict=True)):
            rid = request.rid
            if (handle := handles.get(rid)) is None:
                continue
            most = getattr(request, "finished_len", None)
            length = length if most is None else min(length, most)
            if (got := length - known.get(rid, 0)) > 0:
                tokens[rid] = got
            known[rid] = length
            if got > 0 or (one.chunks is not None and handle not in evicted):
                scheduled[rid] = one.width if one.chunks is None else one.chunks[i]
        return tokens, scheduled


def _grown(lengths: Sequence[int], before: Sequence[int]) -> bool:
    """Each answer is longer by one."""
    return [length - 1 for length in lengths] == before


def _last(request: Any, length: int) -> bool:
    """Whether it is done, and nothing came after an answer of this length."""
    return request.finished_reason is not None and length >= len(request.output_ids)
