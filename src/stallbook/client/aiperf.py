"""A line of AIPerf's raw export: one request, with everything that it sent and got.

`start_perf_ns` and the `perf_ns` of each response are `time.perf_counter_ns` of the worker that sent it;
`metadata.x_request_id` is what it sent as X-Request-ID. How many tokens a chunk holds the export does not say; the
server does, if it is asked to (`return_token_ids`, `stream_options.continuous_usage_stats`, `logprobs`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from stallbook.client.seen import UNSTATED, Chunk, Request, Seen
from stallbook.client.told import WrongError, clock, count, known, name, stamps

__all__ = ["aiperf"]


def aiperf(told: dict[str, Any], seen: Seen) -> Request | None:
    """One request; None, counted, if it brought nothing that could be used."""
    meta, responses = told.get("metadata"), told.get("responses")
    known(isinstance(meta, dict), "metadata is not an object")
    known(isinstance(responses, list), "responses is not a list")
    assert isinstance(meta, dict)
    assert isinstance(responses, list)
    if told.get("error") or meta.get("was_cancelled"):
        seen.left_out["failed_client_requests"] += 1
    who = meta.get("x_request_id") or _header(told.get("request_headers"))
    if not who:
        seen.left_out["unnamed_client_requests"] += 1
        return None
    start = clock(told.get("start_perf_ns"))
    known(all(isinstance(response, dict) for response in responses), "a response is not an object")
    times = stamps([response.get("perf_ns") for response in responses], start)
    chunks, total = [], 0
    for t, response in zip(times, responses, strict=True):
        for piece in _pieces(response):
            choice = _choice(piece)
            if choice is None:
                continue
            if choice.get("index"):
                seen.left_out["client_requests_of_several_choices"] += 1
                return None
            tokens, total = _tokens(piece, choice, total)
            chunks.append(Chunk(t, tokens, _text(choice)))
    if not any("packets" in response for response in responses):
        seen.left_out["unstreamed_client_requests"] += 1
        return None
    return Request(name(who), start, tuple(chunks))


def _header(headers: Any) -> Any:
    if isinstance(headers, dict):
        for key, value in headers.items():
            if str(key).lower() == "x-request-id":
                return value
    return None


def _pieces(response: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The JSON objects of a server-sent event; its end mark, comments and errors are none."""
    packets = response.get("packets", ())
    known(isinstance(packets, (list, tuple)), "packets is not a list")
    for packet in packets:
        known(isinstance(packet, dict), "a packet is not an object")
        value = packet.get("value")
        if packet.get("name") == "data" and isinstance(value, str) and value.startswith("{"):
            try:
                piece = json.loads(value)
            except (ValueError, RecursionError):
                raise WrongError("the data of a chunk is not JSON") from None
            yield piece


def _choice(piece: dict[str, Any]) -> dict[str, Any] | None:
    """The one choice of a chunk; None where it has none, as the last one, with the usage, has not."""
    choices = piece.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return None
    return choices[0]


def _tokens(piece: dict[str, Any], choice: dict[str, Any], before: int) -> tuple[int, int]:
    """The tokens of a chunk, and those of the answer up to it, as far as the server told."""
    ids, usage, probabilities = choice.get("token_ids"), piece.get("usage"), choice.get("logprobs")
    if isinstance(ids, list):
        return len(ids), before + len(ids)
    if isinstance(usage, dict) and "completion_tokens" in usage:
        total = count(usage["completion_tokens"])
        known(total >= before, f"the usage falls from {before} to {total} tokens")
        return total - before, total
    if isinstance(probabilities, dict):
        told = probabilities.get("tokens", probabilities.get("content"))
        if isinstance(told, list):
            return len(told), before + len(told)
    if isinstance(choice.get("delta"), dict) and choice["delta"].get("role") and not _text(choice):
        return 0, before  # chat begins with a chunk that names the role
    return UNSTATED, before


def _text(choice: dict[str, Any]) -> bool:
    """Whether a chunk brings anything to read."""
    delta = choice.get("delta")
    if isinstance(delta, dict):
        return any(delta.get(key) for key in ("content", "reasoning_content", "reasoning", "tool_calls"))
    return bool(choice.get("text"))
