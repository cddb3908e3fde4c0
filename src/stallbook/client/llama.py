"""Streams of llama.cpp's server as they came: server-sent events (`curl -N ... > FILE`), or their objects a line each.

With `"timings_per_token": true` each chunk tells the server's own clock: `prompt_ms` from when it began with the prompt
to the first token, `predicted_ms` from there to the last of `predicted_n` tokens. Both are taken when the token was
sampled, so their differences are the gaps as the server measured them. The client's own clock is not in such a file.
Several streams may follow each other or, where chunks have ids (the OpenAI endpoints), be mixed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from stallbook.client.seen import Chunk, Request, Seen
from stallbook.client.told import WrongError, count, known

__all__ = ["Streams", "event", "is_stream"]

_FIELDS: Final = ("prompt_ms", "predicted_n", "predicted_ms")
_LONGEST_MS: Final = 1e12


def event(line: bytes) -> dict[str, Any] | None:
    """The object of a line of server-sent events; None where it has none (`[DONE]`, comments, names of events)."""
    name, _, data = line.strip().partition(b":")
    if name not in (b"data", b"error") or not data.lstrip().startswith(b"{"):
        return None
    told = json.loads(data)
    return {"error": told} if name == b"error" and "error" not in told else dict(told)


def is_stream(told: dict[str, Any]) -> bool:
    """Whether an object is a chunk of such a stream, with or without timings."""
    return (
        "timings" in told
        or {"content", "stop", "tokens_predicted"} <= told.keys()
        or told.keys() == {"error"}
        or ("choices" in told and "object" in told)
    )


@dataclass
class _Stream:
    name: str
    chunks: list[Chunk] = field(default_factory=list)
    tokens: int = 0
    prompt: int = -1
    untimed: int = 0
    open: bool = True


class Streams:
    """Takes objects in the order of the file; gives the requests at its end."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._known: dict[str, _Stream] = {}
        self._last: _Stream | None = None

    def take(self, told: dict[str, Any], seen: Seen) -> None:
        """One chunk."""
        if "error" in told:
            seen.left_out["failed_client_requests"] += 1
            if self._last:
                self._last.open = False
            return
        timings = told.get("timings")
        stream = self._stream(told, timings)
        if not isinstance(timings, dict):
            stream.untimed += bool(_text(told))
        else:
            self._timed(stream, timings)
        if told.get("stop") is True:
            stream.open = False

    def _timed(self, stream: _Stream, timings: dict[str, Any]) -> None:
        known(all(name in timings for name in _FIELDS), f"timings lack one of {', '.join(_FIELDS)}")
        t, tokens = _ns(timings["prompt_ms"]) + _ns(timings["predicted_ms"]), count(timings["predicted_n"])
        new = tokens - stream.tokens
        known(new >= 0, f"predicted_n falls from {stream.tokens} to {tokens}")
        parts = [timings.get(name) for name in ("prompt_n", "cache_n")]
        if type(parts[0]) is int:
            stream.prompt = parts[0] + (parts[1] if type(parts[1]) is int else 0)
        if new:
            known(not stream.chunks or t >= stream.chunks[-1].t, "its timings fall")
            stream.chunks.append(Chunk(t, new))
            stream.tokens += new

    def _stream(self, told: dict[str, Any], timings: Any) -> _Stream:
        """The stream of a chunk: that of its id, or else the one under way."""
        who = told.get("id")
        if isinstance(who, str) and who.isprintable() and who:
            stream = self._known.get(who)
        else:
            who, stream = f"stream {len(self._known) + 1}", self._last
            number = timings.get("predicted_n") if isinstance(timings, dict) else None
            if stream and (not stream.open or (isinstance(number, int) and number < stream.tokens)):
                stream = None
        if stream is None:
            stream = self._known[who] = _Stream(who)
        self._last = stream
        return stream

    def requests(self) -> Iterator[Request]:
        """All that had timings of each token."""
        for stream in self._known.values():
            if stream.chunks and not stream.untimed:
                yield Request(stream.name, None, tuple(stream.chunks), stream.prompt)
            else:
                self._seen.left_out["client_requests_without_timings"] += bool(stream.chunks or stream.untimed)


def _ns(value: Any) -> int:
    """Milliseconds as nanoseconds; the server tells three digits, so whole microseconds."""
    known(type(value) in (int, float) and 0 <= value < _LONGEST_MS, f"{value!r:.40} is no number of milliseconds")
    return round(float(value) * 1000) * 1000


def _text(told: dict[str, Any]) -> str:
    """What a chunk brings to read."""
    choices = told.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    delta = choice.get("delta") if isinstance(choice.get("delta"), dict) else {}
    told_text = told.get("content") or choice.get("text") or (delta or {}).get("content")
    if told_text is not None and not isinstance(told_text, str):
        raise WrongError("the text of a chunk is no string")
    return told_text or ""
