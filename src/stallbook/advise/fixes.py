"""What can be done about each cause, in any engine: the first of a list is what to do first. Data alone."""

from __future__ import annotations

from typing import Final

from stallbook.advise.model import Cost, Fix
from stallbook.causes import OTHER

__all__ = ["FIXES", "RECORD", "every_fix", "fixes_of", "record_of"]


def _fix(slug: str, what: str, *costs: tuple[str, str], note: str = "") -> Fix:
    return Fix(slug, what, tuple(Cost(where, how) for where, how in costs), note)


_FEWER_SEQUENCES = _fix(
    "fewer-sequences",
    "let fewer requests run at once",
    ("TTFT", "requests wait longer for their turn"),
    ("throughput", "smaller batches make fewer tokens a second"),
)
_OWN_CORES = _fix(
    "own-cores",
    "give the threads that the engine waits for cores of their own",
    ("CPU", "cores that nothing else may use"),
    ("throughput", "whatever ran on those cores gets slower"),
)
_STREAM_LESS = _fix(
    "stream-interval",
    "hand out several tokens at a time",
    ("p50", "tokens reach the client in bundles: fewer gaps, each as long as its tokens"),
    note="This moves where the time shows; a reader still waits for the same tokens.",
)
_MORE_FRONTENDS = _fix(
    "more-frontends",
    "run more processes between the clients and the engine",
    ("CPU", "a core each"),
    ("memory", "a tokenizer each"),
)
_OVERLAP = _fix(
    "overlap",
    "schedule the next step while the device works on this one",
    ("TTFT", "a new request waits for the step that is in flight"),
)
_CAPTURED = _fix(
    "captured-decode",
    "run decodes as captured graphs, not eagerly",
    ("memory", "each captured size holds some of the device's"),
    ("start-up", "each size is captured before serving"),
)

FIXES: Final[dict[str, tuple[Fix, ...]]] = {
    "prefill": (
        _fix(
            "smaller-chunks",
            "take fewer prompt tokens a step",
            ("TTFT", "a long prompt takes more steps"),
            ("throughput", "each chunk pays a step's fixed cost again"),
            note="Chunks spread a prompt over more steps; its work stays. Expect it in the p99, less in the share.",
        ),
        _fix("space-prefills", "run some decode steps between two prefills", ("TTFT", "prompts wait for those steps")),
        _fix(
            "cap-long-prompts",
            "cap what one long prompt may take of a step",
            ("TTFT", "those prompts take longer"),
        ),
        _fix("reuse-prefixes", "reuse the cache of prompts that begin alike", ("memory", "cache kept for reuse")),
        _fix(
            "prefill-elsewhere",
            "compute prompts in another process or on another machine",
            ("TTFT", "the cache has to be transferred"),
            ("memory", "a second copy of the model"),
        ),
    ),
    "preempt": (
        _fix(
            "admit-watermark",
            "admit a request only while part of the KV pool stays free",
            ("TTFT", "requests wait longer for admission: look at its mean and p99"),
            ("throughput", "that part of the pool serves no one while it is kept"),
        ),
        _fix(
            "more-kv",
            "make the KV pool larger",
            ("memory", "less for all else on the device"),
            ("p50", "more requests run at once, and a step takes longer"),
        ),
        _FEWER_SEQUENCES,
        _fix("smaller-kv", "store the cache in fewer bits", ("accuracy", "answers change: measure them")),
    ),
    "graph": (
        _fix(
            "capture-sizes",
            "capture graphs up to the largest batch",
            ("memory", "each captured size holds some of the device's"),
            ("start-up", "each size is captured before serving"),
            ("p50", "batches below a new size are padded up to it: shows as pad"),
        ),
        _FEWER_SEQUENCES,
    ),
    "gc": (
        _fix(
            "gc-freeze",
            "move the start-up heap out of the collector's sight before serving",
            ("memory", "what is frozen is never collected"),
            ("start-up", "one full collection before the first request"),
            note="It takes the old heap out of each full collection; what serving allocates still grows.",
        ),
        _fix(
            "fewer-objects",
            "keep what is made per token in flat arrays, not as objects",
            ("code", "the engine changes"),
        ),
        _fix(
            "gc-thresholds",
            "collect less often: raise the collector's thresholds",
            ("memory", "dead cycles live longer"),
            ("worst gap", "a full collection that does run has more to scan"),
        ),
    ),
    "tok": (
        _fix(
            "tokenize-off-loop",
            "tokenize in another process than the engine's",
            ("CPU", "that process competes for cores: shows as os or slow"),
            ("TTFT", "a prompt goes there and back"),
        ),
        _fix("token-ids", "take token ids from clients instead of text", ("code", "the clients change")),
    ),
    "os": (
        _OWN_CORES,
        _fix(
            "fewer-threads",
            "run no more threads than there are cores",
            ("throughput", "their work gets slower"),
        ),
        _fix("cpu-quota", "raise or lift the container's CPU quota", ("CPU", "less for its neighbours")),
    ),
    "slow": (
        _OWN_CORES,
        _fix(
            "steady-machine",
            "hold the machine still: fixed clocks, no power cap, no neighbour",
            ("throughput", "a fixed clock is below the highest"),
        ),
    ),
    "unscheduled": (
        _fix(
            "room-in-the-step",
            "let each step take a token of every running request, and more",
            ("p99", "larger steps take longer: shows as prefill"),
        ),
        _fix("fair-policy", "schedule in order of arrival", ("TTFT", "what had priority waits like all else")),
        _FEWER_SEQUENCES,
    ),
    "pad": (
        _fix(
            "finer-sizes",
            "capture sizes that lie closer together",
            ("memory", "each captured size holds some of the device's"),
            ("start-up", "each size is captured before serving"),
        ),
    ),
    "fwd": (
        _CAPTURED,
        _FEWER_SEQUENCES,
        _fix(
            "less-work",
            "make the pass itself cheaper: fewer bits, more devices, drafts",
            ("memory", "or machines, or accuracy, by what is chosen"),
        ),
    ),
    "sched": (_OVERLAP, _FEWER_SEQUENCES),
    "sample": (
        _fix(
            "fewer-extras",
            "drop log-probabilities, penalties and grammars where no one reads them",
            ("code", "the clients change"),
        ),
    ),
    "output": (_STREAM_LESS, _OVERLAP),
    "frontend": (
        _MORE_FRONTENDS,
        _STREAM_LESS,
    ),
    "network": (
        _fix("unbuffered", "let no proxy buffer or bundle the stream", ("throughput", "more and smaller packets")),
    ),
    OTHER + "tokenize": (_MORE_FRONTENDS,),
    OTHER + "compile": (
        _fix("warm-up", "run every shape once before serving", ("start-up", "the compilation moves there")),
    ),
    OTHER + "kv": (
        _fix("more-kv", "keep more of the cache on the device", ("memory", "less for all else on the device")),
        _fix("kv-store", "bring the cache's store nearer", ("memory", "of the host")),
    ),
    OTHER + "cache": (
        _fix(
            "smaller-prompt-cache",
            "keep fewer prompts for reuse, or none: each is copied between two steps",
            ("TTFT", "a prompt that was not kept is computed again"),
        ),
    ),
    OTHER + "lora": (
        _fix("resident-adapters", "keep more adapters loaded", ("memory", "of the device, and of the host")),
        _fix("overlap-adapters", "load adapters while the device works", ("memory", "a buffer more")),
    ),
    OTHER + "grammar": (
        _fix("grammar-backend", "compile grammars in another backend, or keep the compiled", ("memory", "of the host")),
    ),
    **dict.fromkeys([OTHER + name for name in ("loop", "dispatch", "ipc", "runner", "handoff")], (_OVERLAP, _CAPTURED)),
}
"""`residual` has none: what no record explains has to be recorded first."""

_NAMED = _fix("off-the-step", "move that work off the step, or before serving", ("code", "the engine changes"))

RECORD: Final = {
    "prefill": "name `prefill` segments, or give each step its prefill_tokens",
    "preempt": "record evictions and readmissions as events",
    "graph": "give each step `graph` and `padded`, and name its `decode` segment",
    "gc": "record each collection's start and end in the engine's and the workers' processes",
    "tok": "name `tok` segments on the engine loop",
    "fwd": "name `decode` segments",
    "os": "record run-queue delay (run_delay_ns) of segments or steps",
    "slow": "name `decode` segments and give captured steps their `padded` size",
    "unscheduled": "give each step its `members`",
    "pad": "give captured steps their `padded` size",
    "frontend": "record deliveries at the frontend",
    "network": "join a client's log (`report --client`)",
    "residual": "name segments for all that the engine's loop does",
}
"""What to record so that a cause can be placed."""


def fixes_of(cause: str) -> tuple[Fix, ...]:
    """The fixes of a cause, the first to be done first."""
    return FIXES.get(cause, (_NAMED,) if cause.startswith(OTHER) else ())


def record_of(cause: str) -> str:
    """What to record so that a cause can be placed."""
    return RECORD.get(cause, f"name `{cause.removeprefix(OTHER)}` segments")


def every_fix() -> dict[str, Fix]:
    """All fixes by their slug."""
    return {fix.slug: fix for fixes in (*FIXES.values(), (_NAMED,)) for fix in fixes}
