"""What vLLM says of a step, where its versions differ."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

__all__ = ["resumed", "tokens_of"]


def resumed(output: Any) -> Collection[str]:
    """Requests that are back after an eviction."""
    cached = output.scheduled_cached_reqs
    try:
        return cached.resumed_req_ids  # type: ignore[no-any-return]
    except AttributeError:  # before 0.11
        flags = getattr(cached, "resumed_from_preemption", ())
        return [name for name, is_back in zip(cached.req_ids, flags, strict=False) if is_back]


def tokens_of(result: Mapping[int, Any]) -> dict[str, int]:
    """How many tokens each request got."""
    every = (o for one in result.values() for o in one.outputs)
    return {o.request_id: len(o.new_token_ids) for o in every if o.new_token_ids}
