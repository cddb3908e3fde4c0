"""Plants faults in a vLLM that runs under test, and keeps a journal of its own clock reads.

Nothing happens unless `STALLBOOK_FAULTS` names a folder. The journal is a file a process, JSON Lines, in that folder;
it knows nothing of the recorder, and is told nothing by it.

- `SIGUSR2` to the engine core: a full collection on an unfrozen heap, wherever its main thread is.
- `SIGUSR1` to the engine core: all free KV blocks are taken away for a while, so that the newest requests are evicted.
- `STALLBOOK_FAULTS_RAISE=1`: the recorder's hook at a step's emission raises.

Journalled in any case: forward passes with the tokens they computed, evictions, and when each evicted request
was scheduled again.
"""

from __future__ import annotations

import functools
import gc
import json
import multiprocessing
import os
import signal
import time
from typing import Any

HOLD_NS = 400_000_000
"""How long KV blocks are taken away."""
BURST = "burst-"
"""What the ids of a burst's requests hold."""


def register() -> None:
    """Install what belongs to this process."""
    folder = os.environ.get("STALLBOOK_FAULTS")
    name = multiprocessing.current_process().name
    if not folder or not ("EngineCore" in name or "Worker" in name):
        return
    journal = Journal(folder)
    if "EngineCore" in name:
        _engine(journal)
    _runner(journal)
    if os.environ.get("STALLBOOK_FAULTS_RAISE"):
        _spoil()


def _spoil() -> None:
    """The recorder's own code fails at every emission, as a defect in it would."""
    from stallbook.adapters.vllm.engine import Engine

    def emitted(*_: object) -> None:
        raise RuntimeError("planted")

    Engine.emitted = emitted  # type: ignore[assignment, method-assign]


class Journal:
    """One process's; opened anew after a fork."""

    def __init__(self, folder: str) -> None:
        self.folder, self.pid, self.fd = folder, 0, -1

    def note(self, what: str, **more: Any) -> None:
        """A line, written at once."""
        if self.pid != os.getpid():
            self.pid = os.getpid()
            self.fd = os.open(f"{self.folder}/{self.pid}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.write(self.fd, (json.dumps({"what": what, **more}) + "\n").encode())


def _engine(journal: Journal) -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    wanted = {"pool": False}

    def collect(*_: object) -> None:
        gc.unfreeze()
        t0 = time.perf_counter_ns()
        gc.collect()
        journal.note("collection", t0=t0, t1=time.perf_counter_ns())
        gc.freeze()

    def pool(*_: object) -> None:
        wanted["pool"] = True

    signal.signal(signal.SIGUSR2, collect)
    signal.signal(signal.SIGUSR1, pool)
    _patch(Scheduler, "schedule", functools.partial(_schedule, journal, wanted))
    _patch(Scheduler, "_preempt_request", functools.partial(_preempt, journal))


AWAY: set[str] = set()
"""Requests that were evicted and have not been scheduled since."""


def _schedule(journal: Journal, wanted: dict[str, bool], original: Any, self: Any, *args: Any, **more: Any) -> Any:
    blocks = self.kv_cache_manager.block_pool
    held = vars(self).get("_planted")
    if wanted["pool"] and held is None:
        wanted["pool"] = False
        taken = blocks.get_new_blocks(blocks.get_num_free_blocks())
        self._planted = (time.perf_counter_ns() + HOLD_NS, taken)
    elif held is not None and time.perf_counter_ns() > held[0]:
        blocks.free_blocks(held[1])
        self._planted = None
    output = original(self, *args, **more)
    now = time.perf_counter_ns()
    journal.note("mark", t=now, cpu=time.thread_time_ns())
    for name in AWAY & output.num_scheduled_tokens.keys():
        AWAY.remove(name)
        journal.note("back", t=now, request=name)
    return output


def _preempt(journal: Journal, original: Any, self: Any, request: Any, *args: Any, **more: Any) -> Any:
    t = time.perf_counter_ns()
    result = original(self, request, *args, **more)
    AWAY.add(request.request_id)
    journal.note("evict", t=t, request=request.request_id)
    return result


def _runner(journal: Journal) -> None:
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    def passed(original: Any, self: Any, output: Any, *args: Any, **more: Any) -> Any:
        t0, c0 = time.perf_counter_ns(), time.thread_time_ns()
        result = original(self, output, *args, **more)
        t1, c1 = time.perf_counter_ns(), time.thread_time_ns()
        tokens = output.num_scheduled_tokens
        burst = sum(count for name, count in tokens.items() if BURST in name)
        journal.note(
            "pass", t0=t0, t1=t1, cpu0=c0, cpu1=c1, tokens=sum(tokens.values()), rows=len(tokens), burst=burst
        )  # fmt: skip
        return result

    _patch(GPUModelRunner, "execute_model", passed)


def _patch(owner: type, name: str, wrapper: Any) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def planted(self: Any, *args: Any, **more: Any) -> Any:
        return wrapper(original, self, *args, **more)

    setattr(owner, name, planted)
