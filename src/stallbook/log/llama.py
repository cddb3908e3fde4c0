"""Reads what llama.cpp's server logs when it is verbose: `llama-server -lv 10 --log-timestamps --log-file FILE`.

Nothing of llama.cpp is changed or hooked: each message tells what the server was at, and when. What becomes of them is
in `llama_steps`; what no message tells is not recorded. See docs/llama.md.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from stallbook.errors import StallbookError
from stallbook.log.draft import Draft
from stallbook.log.llama_lines import Progress, lines
from stallbook.log.llama_steps import Steps

__all__ = ["FLAGS", "read_llama"]

FLAGS: Final = "-lv 10 --log-timestamps --log-file FILE"
_AGAIN: Final = f"run llama-server with {FLAGS}"

_RECORDS: Final = frozenset({"segments", "members", "kv_tokens", "evictions", "gc"})
"""A claim about absence: llama.cpp has no collector and evicts no request that runs. Graphs, the device and the
system's scheduling are not in its log."""

_SETTINGS: Final = (
    (re.compile(rb"llama_context: +(n_ctx|n_batch|n_ubatch|n_seq_max) += +(\d+)"), int),
    (re.compile(rb"(n_slots) = (\d+)"), int),
    (re.compile(rb"(n_ctx_slot) = (\d+)"), int),
    (re.compile(rb"(kv_unified) = '(true|false)'"), lambda told: told == b"true"),
    (re.compile(rb"system_info: (n_threads) = (\d+)"), int),
    (re.compile(rb"(n_threads_batch) = (\d+)"), int),
    (re.compile(rb"prompt (cache) is enabled, size limit: (\d+) MiB"), int),
)
_NAMES: Final = {"n_slots": "parallel", "n_ctx": "ctx_size", "n_batch": "batch_size", "n_ubatch": "ubatch_size",
                 "n_threads": "threads", "n_threads_batch": "threads_batch", "cache": "cache_ram"}  # fmt: skip
"""The server's flags for what its log calls so."""
_BUILD: Final = re.compile(rb"build_info: (b\d+)-|common_params_print_info: build (\d+) \(|^build: (\d+) \(")


def read_llama(path: Path, progress: Progress | None = None) -> Draft:
    """The run that a log tells of; refuses one that was not verbose enough."""
    draft = Draft(path=str(path), forgiving=True)
    steps = Steps(draft)
    number = 0
    build = ""
    for number, t, text in lines(path, draft.notes, progress):
        if not steps.take(number, t, text) and not steps.launched:
            build = _setting(draft, text) or build
    _refuse(path, number, steps)
    steps.close()
    draft.engine = f"llama.cpp {build}".rstrip()
    draft.records = _RECORDS
    draft.facts["format"] = "llama.cpp log"
    draft.facts["clock"] = {"name": "since the server started", "resolution_ns": 1000}
    if steps.failed:
        draft.facts["failed"] = dict(steps.failed)
    return draft


def _refuse(path: Path, number: int, steps: Steps) -> None:
    """Say what a log lacks that cannot be used."""
    if not number:
        raise StallbookError("llama-stamps", "a log of llama.cpp without timestamps", _AGAIN, str(path))
    if steps.tokens:
        return
    if steps.launched:
        what = "a log of llama.cpp that is not verbose: requests, and no line on their tokens"
        raise StallbookError("llama-verbose", what, _AGAIN, f"{path}:{steps.launched}")
    what = "a log of llama.cpp in which no request runs"
    raise StallbookError("empty", what, f"{_AGAIN}, and send it requests", str(path))


def _setting(draft: Draft, text: bytes) -> str:
    """Keep what the server says of itself when it starts; its build, if this line has it."""
    for pattern, kind in _SETTINGS:
        if found := pattern.search(text):
            name = found[1].decode()
            draft.config.setdefault(_NAMES.get(name, name), kind(found[2]))
    found = _BUILD.search(text)
    number = next((group.decode() for group in found.groups() if group), "") if found else ""
    return "" if number in ("", "0", "b0") else number if number.startswith("b") else f"b{number}"
