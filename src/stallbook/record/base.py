"""The recorder's life: opening the folder, failing open, names and facts, its own cost, closing, forks."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

from stallbook.record import counters, manifest, spool
from stallbook.record.cost import Cost, twin
from stallbook.record.counters import RunDelay
from stallbook.record.pauses import Pauses
from stallbook.record.spool import Spool, spool_name

__all__ = ["OFF_VARIABLE", "Base"]

OFF_VARIABLE: Final = "STALLBOOK_RECORD"
"""The kill switch: set to 0, no recorder opens a file."""
_ERRORS: Final = 10
_ALL: Final = ("segments", "gc", "evictions", "graph", "members", "os", "holds")
_LAYOUTS: Final = {kind: [spool.layout(kind, marks) for marks in range(64)] for kind in spool.WIDE}
_LONGEST_FACT: Final = 1 << 20
_STATES: Final = 16
"""After so many timed steps the recorder's own counts are written."""
_live: weakref.WeakSet[Base] = weakref.WeakSet()


class Base:
    """What a recorder is apart from what it records."""

    __slots__ = (
        "__weakref__", "_batch", "_clock", "_closed_ns", "_cost", "_counters", "_cpu", "_cut", "_delays", "_emit",
        "_ended", "_facts", "_flags", "_folder", "_ids", "_kind", "_layouts", "_live", "_manifest", "_members",
        "_names", "_off", "_ops", "_owners", "_pairs", "_pauses", "_pending", "_pool", "_prefill", "_process",
        "_requests", "_said", "_sequence", "_step", "_store", "_t0", "_times", "_unusual", "_waits", "_windows",
        "dropped", "errors", "refused",
    )  # fmt: skip

    _name_limit = spool.NO_NAME  # a mark has a byte for its name
    _longest = 1024  # characters of an id or a name

    def __init__(
        self, path: str | os.PathLike[str], *, engine: str, process: str = "engine",
        config: Mapping[str, Any] | None = None, records: Iterable[str] | None = None, boundary: str = "engine",
        clock: Callable[[], int] = time.perf_counter_ns, os_counters: Literal["segment", "step"] | None = "segment",
        pool_threads: bool = False, gc_pauses: bool = True, baseline: Mapping[str, float] | None = None,
        extra: Mapping[str, Any] | None = None, strict: bool = False,
    ) -> None:  # fmt: skip
        self._cost = Cost()
        self._clock, self._process, self._folder = clock, process, Path(path)
        self.errors = self.dropped = self.refused = 0
        self._off, self._said = True, False
        self._store: Spool | None = None
        self._counters = os_counters if os_counters and counters.available() else None
        self._kind = {None: spool.STEP, "step": spool.STEP_OS, "segment": spool.STEP_DELAYS}[self._counters]
        self._layouts = _LAYOUTS[self._kind]
        self._pool = pool_threads
        self._delays: RunDelay | None = None
        self._names: dict[str, int] = {}
        self._facts: dict[str, Any] = {}
        self._requests = self._closed_ns = 0
        self._live: dict[int, int] = {}  # handles of requests that have not finished, and when they arrived
        self._ids: dict[str, int] = {}  # how often each id has arrived
        self._clear()
        self._pauses = Pauses(clock, self._collected)
        self._pending = self._pauses.pending
        told = manifest.Told(engine, boundary, _ALL if records is None else records, config, baseline)
        self.refused += told.refused
        abilities = told.records
        if self._counters is None:
            abilities.discard("os")
        if not gc_pauses:
            abilities.discard("gc")
        self._manifest = {
            "engine": told.engine, "boundary": told.boundary, "records": sorted(abilities), "config": told.config,
            "baseline": told.baseline, "process": process, "os_counters": self._counters,
            "pool_threads": pool_threads, **(extra or {}),
        }  # fmt: skip
        if os.environ.get(OFF_VARIABLE) == "0":
            return
        try:
            self._open_folder()
            self._off = False
            self._begin_window()
            if gc_pauses:
                self._pauses.start()
        except Exception as error:
            if strict:
                raise
            self._disable(f"cannot write {self._folder}: {getattr(error, 'strerror', None) or error}")

    def _clear(self) -> None:
        self._unusual = False
        self._flags = -1  # no step is open
        self._ended = -(2**62)
        self._t0 = self._emit = self._cpu = self._cut = self._prefill = self._step = 0
        self._batch: set[int] = set()
        self._sequence: list[int] = []  # names of the marks
        self._times: list[int] = []  # and when they were
        self._waits: list[int] = []  # and the run-queue delays
        self._ops: list[int] = []
        self._pairs: list[int] = []
        self._members: list[int] = []
        self._owners: list[int] = []
        self._windows: list[bytes] = []

    def _open_folder(self) -> None:
        self._folder.parent.mkdir(parents=True, exist_ok=True)
        new = not self._folder.is_dir()
        with contextlib.suppress(FileExistsError):
            self._folder.mkdir(mode=0o700)
        try:
            self._begin_files()
        except BaseException:
            self._unmake(new)
            raise
        _live.add(self)
        atexit.register(self.close)

    def _begin_files(self) -> None:
        self._store = Spool(self._folder / spool_name(self._process), self._begin_window)
        self._manifest = {**manifest.describe(self._clock), **self._manifest}
        hello = {k: self._manifest[k] for k in ("process", "pid", "clock", "os_counters")}
        self._store.append(spool.HELLO, json.dumps(hello).encode())
        if self._process == "engine":
            self._write_manifest()

    def _unmake(self, new: bool) -> None:
        """Leave no log behind that could not be begun."""
        with contextlib.suppress(OSError):
            if self._store is not None:
                store, self._store = self._store, None
                store.abandon()
                (self._folder / spool_name(self._process)).unlink()
            if new:
                self._folder.rmdir()  # unless another process was quicker

    def _write_manifest(self, **more: Any) -> None:
        manifest.write(self._folder, {**self._manifest, "facts": self._facts, **more})

    def _collected(self) -> int:
        """A collection ended: the next record takes it along. Returns the last emission's stamp."""
        self._unusual = True
        return self._emit

    # What every public method leans on.

    def _put(self, kind: int, payload: bytes) -> None:
        """Commit a record, and the pauses that came in since the last one."""
        if self._off or self._store is None:
            return
        try:
            if self._pending:
                self._put_pauses(self._store)
            self._store.append(kind, payload)
        except OSError as error:
            self.dropped += 1
            self._disable(f"cannot write {self._folder}: {error.strerror or error}")

    def _put_pauses(self, store: spool.Spool) -> None:
        waiting = self._pending[:]  # no more than these: writing them may collect again
        for pause in waiting:
            store.append(spool.PAUSE, pause)
        del self._pending[: len(waiting)]

    def _failed(self) -> None:
        """An error inside: the engine must not see it."""
        self.errors += 1
        if self.errors == _ERRORS:
            self._disable(f"{_ERRORS} internal errors, the last: {sys.exc_info()[1]!r}")

    def _disable(self, why: str) -> None:
        """Record no more, and say so once."""
        self._off, self._flags = True, -1
        self._pauses.stop()
        if not self._said:
            self._said = True
            with contextlib.suppress(Exception):
                print(f"stallbook: recording stopped: {why}", file=sys.stderr)

    def name(self, text: str) -> int:
        """Intern a segment name. Call it once, outside the loop."""
        known = self._names.get(text)
        if known is not None:
            return known
        try:
            index = min(len(self._names), self._name_limit - 1)
            self._names[text] = index
            self._put(spool.NAME, spool.R_NAME.pack(index) + text[: self._longest].encode(errors="replace"))
        except Exception:
            self._failed()
            return 0
        return index

    def fact(self, key: str, value: object) -> None:
        """Note something about this run (a rate, a thread count, ...) in the log. Not for a loop: it writes a file."""
        try:
            if self._off:
                return
            name, plain = manifest.text(key), manifest.plain(value)
            text = json.dumps([name, plain]).encode()
            if len(text) > _LONGEST_FACT:
                self.refused += 1
                return
            self._facts[name] = plain
            self._put(spool.FACT, text)
            if self._process == "engine" and isinstance(self._store, Spool):
                self._write_manifest()
        except Exception:
            self._failed()

    @property
    def os_counters(self) -> str | None:
        """What it samples of the OS: "segment", "step", or None where it does not or cannot."""
        return self._counters

    @property
    def self_ns(self) -> int:
        """What recording has cost the engine so far. See `stallbook.record.cost`."""
        store = self._store
        if store is None:
            return self._closed_ns
        return self._cost.total(store.written, self._pauses.seen) + store.grow_ns

    def _begin_window(self) -> None:
        """Time all calls from now to the end of a step."""
        if self._store is not None:
            self._cost.begin(self._store.written)
        plain: Any = type(self)  # mypy takes a class for unhashable
        self.__class__ = twin(plain)

    def _end_window(self) -> None:
        """The step has ended."""
        if self._store is not None:
            self._cost.done(self._store.written)
        if self._cost.windows % _STATES == 0:
            self.flush()

    def _books(self) -> dict[str, int]:
        return {
            "dropped": self.dropped + self._pauses.lost, "errors": self.errors, "self_ns": self.self_ns,
            "refused": self.refused,
        }  # fmt: skip

    def flush(self) -> None:
        """Write what waits: pauses, and the recorder's own counts. For processes that record little else."""
        try:
            *state, refused = self._books().values()
            self._put(spool.STATE, spool.R_STATE.pack(*state))
            if refused:
                self._put(spool.REFUSED, spool.R_REFUSED.pack(refused))
        except Exception:
            self._failed()

    def close(self) -> None:
        """End the recording. Idempotent; runs at exit too."""
        try:
            self._pauses.stop()
            atexit.unregister(self.close)
            if self._store is None:
                return
            if not self._off:
                self.flush()
            self._off, self._flags = True, -1
            self._closed_ns = self.self_ns
            store, self._store = self._store, None
            store.close()
            if self._delays is not None:
                self._delays.close()
            if self._process == "engine" and isinstance(store, Spool):
                self._write_manifest(closed=self._books())
        except Exception:
            self._failed()

    def _forget(self) -> None:
        """In a forked child: the file is the parent's."""
        self._off, self._flags = True, -1
        self._pauses.stop()
        atexit.unregister(self.close)
        if self._store is not None:
            store, self._store = self._store, None
            store.abandon()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _after_fork() -> None:
    for recorder in list(_live):
        with contextlib.suppress(Exception):
            recorder._forget()
    _live.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
