"""SGLang's batches, looked at once their results are processed: who was in one, which tokens each got, who is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from stallbook.notes.sglang import Batch

__all__ = ["Wait", "Watch", "wait_of"]

_ANSWER, _ENDED = attrgetter("output_ids"), attrgetter("finished_reason")


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


class Watch:
    """Looks at each batch once its result is processed, while all of it is in the cache, and keeps nothing of it.

    What the engine made for a step would be cold later, and freed cold. handles: of the requests that are alive.
    """

    __slots__ = ("_ended", "_handles", "_total", "requests")

    def __init__(self, handles: Mapping[str, int]) -> None:
        self._handles = handles
        self.requests: Sequence[Any] = ()
        """Of the last batch, if it decoded and nobody ended in it."""
        self._total = 0
        """The lengths of their answers by now, added up."""
        self._ended: Sequence[Any] = ()
        """Who was done in the batch before."""

    def look(self, batch: Any, result: Any) -> Batch | None:
        """What there is to tell; None if the same requests decoded as the last time, and each got a token."""
        requests = batch.reqs
        total, goes_on = sum(map(len, map(_ANSWER, requests))), not any(map(_ENDED, requests))
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

    def _told(self, batch: Any, extends: bool, width: int) -> Batch:
        before, self._ended = self._ended, [one for one in batch.reqs if one.finished_reason is not None]
        handles = self._handles
        requests = [handles.get(one.rid, -1) for one in batch.reqs]
        for i, one in enumerate(batch.reqs if before else ()):
            if any(one is other for other in before):
                requests[i] = -1  # and one of its name may be alive
        chunks, decoding = None, 0
        if extends:
            chunks, decoding = batch.extend_lens, len(getattr(batch, "decoding_reqs", None) or ())
        ended = [r for r, one in zip(requests, batch.reqs, strict=True) if r >= 0 and one.finished_reason is not None]
        return Batch(width, decoding, requests, [_length(one) for one in batch.reqs], ended, chunks)


def _length(request: Any) -> int:
    """Of its answer; what was drafted beyond its end is cut off."""
    most, length = getattr(request, "finished_len", None), len(request.output_ids)
    return length if most is None else min(length, most)
