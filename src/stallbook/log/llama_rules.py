"""The messages of llama.cpp's server that say what it is at, and what each is called here.

They are told apart by their words, not by the functions that print them, which change names. Of several spellings the
first is the newest. A message that begins like one of these and does not go on like it was garbled.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

__all__ = ["RULES", "Rule"]


@dataclass(frozen=True)
class Rule:
    """name: of the event. begin: how the message begins. rest: how it goes on, with the numbers that count.

    sure: no other message begins so.
    """

    name: str
    begin: bytes
    rest: re.Pattern[bytes]
    sure: bool = True


def _rule(name: str, begin: bytes, rest: bytes = b"", sure: bool = True) -> Rule:
    return Rule(name, begin, re.compile(rest), sure)


_SERVER: Final = (
    _rule("step", b"posting NEXT_RESPONSE"),
    _rule("idle", b"all slots are idle"),
    _rule("batch", b"n_batch (effective) = ", rb"(\d+), off = (\d+)$"),
    _rule("retry", b"failed to find free space in the KV cache, "),
    _rule("purge", b"purging slot "),
    _rule("error", b"task id = ", rb"(\d+), error: (.*)"),
    _rule("defer", b"no slot is available, defer task, id_task = ", rb"(\d+)$"),
    _rule("defer", b"requested slot is unavailable, defer task, id_task = ", rb"(\d+)$"),
    _rule("cache", b"updating prompt cache"),
    _rule("cached", b"prompt cache update took "),
)
_SLOT: Final = (
    _rule("launch", b"processing task", rb""),
    _rule("prompt", b"new prompt, ", rb".*task\.n_tokens = (\d+)$"),
    _rule("prompt", b"new prompt, ", rb".*n_prompt_tokens = (\d+)$"),
    _rule("chunk", b"cached n_tokens = ", rb"(\d+), memory_seq_rm \[\d+, end\)$"),
    _rule("chunk", b"n_tokens = ", rb"(\d+), memory_seq_rm \[\d+, end\)$", sure=False),
    _rule("chunk", b"n_past = ", rb"(\d+), memory_seq_rm \[\d+, end\)$", sure=False),
    _rule("filled", b"prompt processing progress, n_tokens = ", rb"(\d+), "),
    _rule("filled", b"prompt done, n_tokens = ", rb"(\d+), "),
    _rule("filled", b"init sampler, ", rb"took [\d.]+ ms, tokens: text = \d+, total = (\d+)$"),
    _rule("decode", b"slot decode token, ", rb"(?:id ?= ?-?\d+, )?n_ctx = \d+, n_tokens = (\d+), truncated = \d$"),
    _rule("draft_tokens", b"generate_draft: ", rb"id=-?\d+, #tokens=(\d+), #draft=(\d+), pos_next=-?\d+$"),
    _rule("token", b"n_gen = ", rb"(\d+), n_remaining = (-?\d+), next token: "),
    _rule("token", b"n_decoded = ", rb"(\d+), n_remaining = (-?\d+), next token: "),
    _rule("speed", b"n_gen = ", rb" *\d+, tg = "),
    _rule("speed", b"n_decoded = ", rb" *\d+, tg = "),
    _rule("release", b"stop processing: ", rb"n_tokens = \d+, truncated = (\d)$"),
    _rule("cache", b"saving idle slot to prompt cache"),
    _rule("shift", b"slot context shift, "),
)
_QUEUE: Final = (
    _rule("arrive", b"new task, id = ", rb"(\d+)(/\d+)?, front = \d$"),
    _rule("yield", b"yielding to queue"),
    _rule("done", b"done yielding to queue"),
    _rule("loop", b"waiting for new tasks"),
    _rule("loop", b"processing new tasks"),
    _rule("cached", b"processing task, id = ", rb"(\d+)$"),
    _rule("cached", b"update slots"),
)
_RESULTS: Final = (_rule("send", b"sending result for task id = ", rb"(\d+)$"),)


def _table(rules: tuple[Rule, ...]) -> dict[bytes, tuple[Rule, ...]]:
    """By the first word, so that most lines are put aside by one look."""
    found: dict[bytes, tuple[Rule, ...]] = {}
    for rule in rules:
        word = rule.begin.split(b" ", 1)[0]
        found[word] = (*found.get(word, ()), rule)
    return found


RULES: Final = {b"srv": _table(_SERVER), b"slot": _table(_SLOT), b"que": _table(_QUEUE), b"res": _table(_RESULTS)}
"""By who prints it (its four modules), and the first word of what it prints."""
