"""The engine loop: take in what arrived, ask the scheduler for a plan, execute it, emit, account.

The engine owns requests and order; the scheduler decides, the executor computes, the intake tokenizes, the
recorder writes down, and the clock is whatever it was handed. One thread runs it all, as in most engines.

What a step records, in its order: `probe` now and then; `tok` for each prompt tokenized on the loop; `sched`
for the plan and all bookkeeping; `swap` for each copy in or out; `prefill` for each chunk; `decode`; the
emission, stamped when the forward pass returned; `output` for the records of the emitted tokens.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from stallbook.demo.history import History
from stallbook.demo.ports import Clock, Executor, Intake, Recorder, SpeedProbe
from stallbook.demo.scheduler import CAPTURED, EAGER, RESTART, SWAP, Eviction, Limits, Plan, Sequence, State, commit
from stallbook.demo.scheduler import plan as schedule
from stallbook.demo.summary import Progress, Stop
from stallbook.demo.workload import Arrival

__all__ = ["Counts", "Engine", "Job"]

_TICK_NS = 200_000_000
_NAP_S = 0.05
"""The longest sleep of an idle engine: how late it may notice that it should stop."""
_POLL_S = 0.0005


@dataclass(slots=True)
class Counts:
    """What an engine did. Kept apart from the log so that a run without one has them too."""

    arrived: int = 0
    finished: int = 0
    tokens: int = 0
    steps: int = 0
    evictions: int = 0
    restarts: int = 0
    eager_steps: int = 0
    max_batch: int = 0


@dataclass(eq=False, slots=True)
class Job:
    """A request that the engine serves. `fed` is every token given to the model: the prompt, its last token once
    more to start the output, then the output; position i of the KV cache belongs to `fed[i]`."""

    arrival: Arrival
    handle: int
    seq: Sequence
    fed: list[int]
    admitted: bool = False
    joined: bool = False
    away: bool = False
    """Evicted by dropping its cache, and not admitted again yet."""


class Engine:
    """Serves a trace."""

    def __init__(
        self, trace: list[Arrival], limits: Limits, *, executor: Executor, intake: Intake, recorder: Recorder,
        clock: Clock, history: History, probe: SpeedProbe | None = None,
        progress: Callable[[Progress], None] | None = None, stop: Stop | None = None, seconds: float = 0.0,
        drain_seconds: float = float("inf"), planner: Callable[[State, Limits], Plan] = schedule,
    ) -> None:  # fmt: skip
        self._trace = deque(trace)
        self._limits, self._executor, self._intake, self._rec = limits, executor, intake, recorder
        self._clock, self._history, self._probe, self._progress = clock, history, probe, progress
        self._plan = planner
        self._stop = stop or Stop()
        self._seconds, self._limit_s = seconds, seconds + drain_seconds
        self.state = State(limits.kv_blocks)
        self.jobs: dict[int, Job] = {}
        self.counts = Counts()
        self.drain_limit_hit = False
        self._texts: dict[int, tuple[Arrival, int]] = {}
        self._start = self._next_tick = 0
        self._ended: int | None = None
        names = ("tok", "sched", "swap", "prefill", "decode", "output", "probe")
        self._tok, self._sched, self._swap, self._prefill, self._decode, self._output, self._probing = map(
            recorder.name, names
        )

    @property
    def waiting(self) -> int:
        """Requests that arrived and do not run."""
        return len(self.state.waiting) + len(self.state.swapped) + len(self._texts)

    @property
    def load(self) -> int:
        """Requests that are somewhere between offered and finished."""
        return len(self._trace) + len(self.jobs) + len(self._texts)

    def offer(self, arrival: Arrival) -> None:
        """Add a request to the end of the trace."""
        self._trace.append(arrival)

    def run(self) -> None:
        """Serve until everything is served, the drain limit is hit, or a stop is requested."""
        self._start = self._next_tick = self._clock.now()
        limit = self._start + self._limit_s * 1e9
        while not self._stop.requested:
            now = self._clock.now()
            if self._progress is not None and now >= self._next_tick:
                self._tick(now)
            if now >= limit:
                self.drain_limit_hit = bool(self._trace or self._texts or self.state.busy)
                return
            if self.state.busy or self._due(now):
                self.step()
            elif self._texts:
                self._idle(_POLL_S)
                self._poll()
            elif self._trace:
                self._idle(min(_NAP_S, (self._start + self._trace[0].at_ns - now) / 1e9))
            else:
                return

    def _idle(self, seconds: float) -> None:
        self._clock.sleep(seconds)
        self._ended = None

    def _due(self, now: int) -> bool:
        return bool(self._trace) and self._start + self._trace[0].at_ns <= now

    def _tick(self, now: int) -> None:
        assert self._progress is not None
        elapsed = (now - self._start) / 1e9
        phase = "serving" if elapsed < self._seconds else "draining"
        running = len(self.state.running)
        self._progress(Progress(phase, elapsed, self._seconds, self.counts.tokens, running, self.waiting))
        self._next_tick = now + _TICK_NS

    def step(self) -> None:
        """One step: schedule, execute, emit, account.

        While it is busy, a step begins where the one before ended: what the engine loses on the way round is a step's.
        """
        rec = self._rec
        rec.enter(self._sched, -1, rec.begin(t=self._ended))
        now = self._clock.now()
        if self._probe is not None and self._probe.due(now):
            rec.enter(self._probing)
            rec.probe(self._probe.sample())
            rec.enter(self._sched)
        took_in = self._take_in(now)
        step = self._plan(self.state, self._limits)
        if not step and not took_in:
            rec.drop()
            self._ended = None
            return
        for seq in step.readmit:
            self._bring_back(self.jobs[seq.key])
        for eviction in step.evict:
            self._evict(self.jobs[eviction.seq.key], eviction)
        for seq in step.left_out:
            self._leave_out(self.jobs[seq.key])
        if step.chunks:
            self._run_prefill(step)
        kv_tokens = self._run_decode(step) if step.decodes else 0
        for seq in commit(self.state, step):
            self._finish(seq)
        self.counts.steps += 1
        self._count_batch(step)
        self._ended = rec.end(step.graph, step.padded, len(step.decodes), kv_tokens, blocked=step.blocked)

    def _count_batch(self, step: Plan) -> None:
        self.counts.max_batch = max(self.counts.max_batch, len(step.decodes))
        if step.graph == EAGER:
            self.counts.eager_steps += 1

    # Intake

    def _take_in(self, now: int) -> bool:
        took = self._poll()
        rec = self._rec
        while self._due(now):
            arrival = self._trace.popleft()
            key = self.counts.arrived
            self.counts.arrived += 1
            handle = rec.arrive(arrival.name, -1, arrival.max_new, self._start + arrival.at_ns)
            if not self._intake.on_loop:
                self._texts[key] = (arrival, handle)
                self._intake.submit(key, arrival.text)
                continue
            rec.enter(self._tok, handle)
            ids = self._intake.submit(key, arrival.text)
            rec.enter(self._sched)
            assert ids is not None
            self._enlist(key, arrival, handle, ids)
            took = True
        return took

    def _poll(self) -> bool:
        ready = self._intake.poll() if self._texts else ()
        for item in ready:
            self._enlist(item.key, *self._texts.pop(item.key), item.ids)
        return bool(ready)

    def _enlist(self, key: int, arrival: Arrival, handle: int, ids: list[int]) -> None:
        self._rec.prompt(handle, len(ids))
        seq = Sequence(key, len(ids), arrival.max_new)
        self.jobs[key] = Job(arrival, handle, seq, [*ids, ids[-1]])
        self.state.add(seq, self._limits)

    # Preemption

    def _bring_back(self, job: Job) -> None:
        self._rec.enter(self._swap, job.handle)
        self._executor.swap_in(job.seq.key)
        self._rec.readmit(job.handle)
        self._rec.enter(self._sched)

    def _evict(self, job: Job, eviction: Eviction) -> None:
        rec, seq = self._rec, job.seq
        if eviction.mode == RESTART:
            self.counts.restarts += 1
            rec.restart()
            self._executor.drop(seq.key)
            return
        self.counts.evictions += 1
        job.joined = False
        rec.evict(job.handle, eviction.mode != SWAP, 0 if eviction.mode == SWAP else seq.computed)
        if eviction.mode == SWAP:
            rec.enter(self._swap, job.handle)
            self._executor.swap_out(seq.key, seq.computed)
            rec.enter(self._sched)
        else:
            self._executor.drop(seq.key)
            job.away = True

    def _leave_out(self, job: Job) -> None:
        if job.joined:
            job.joined = False
            self._rec.part(job.handle)

    # The forward passes

    def _run_prefill(self, step: Plan) -> None:
        rec = self._rec
        for chunk in step.chunks:
            job = self.jobs[chunk.seq.key]
            if not job.admitted:
                job.admitted = True
                rec.admit(job.handle)
            elif job.away:
                job.away = False
                rec.readmit(job.handle)
            rec.enter(self._prefill, job.handle)
            rec.prefill(chunk.tokens)
            rec.member(job.handle)
            self._executor.prefill(chunk.seq.key, job.fed[chunk.start : chunk.start + chunk.tokens], chunk.start)
        rec.enter(self._sched)

    def _run_decode(self, step: Plan) -> int:
        rec = self._rec
        jobs = [self.jobs[seq.key] for seq in step.decodes]
        keys = [seq.key for seq in step.decodes]
        positions = [seq.computed for seq in step.decodes]
        rows = [job.fed[at] for job, at in zip(jobs, positions, strict=True)]
        for job in jobs:
            if not job.joined:
                job.joined = True
                rec.join(job.handle)
        rec.enter(self._decode)
        if step.graph == CAPTURED:
            tokens = self._executor.decode(keys, rows, positions, step.padded)
        else:
            tokens = self._executor.decode_eager(keys, rows, positions)
        rec.leave()
        stamp = rec.emit()
        rec.enter(self._output)
        for job, token in zip(jobs, tokens, strict=True):
            job.fed.append(token)
            self._history.add(job.arrival.name, job.seq.key, token, stamp)
        self.counts.tokens += len(jobs)
        rec.enter(self._sched)
        return sum(positions) + len(positions)

    def _finish(self, seq: Sequence) -> None:
        job = self.jobs.pop(seq.key)
        self._executor.drop(seq.key)
        self._rec.finish(job.handle)
        self.counts.finished += 1
