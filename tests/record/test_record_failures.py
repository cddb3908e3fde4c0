"""Whatever goes wrong inside the recorder, the engine does not notice."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recordings import read

import stallbook
from stallbook.record import Recorder

Make = Callable[..., Recorder]


def use(rec: Recorder, steps: int = 1) -> None:
    """Everything an engine calls."""
    name, a = rec.name("decode"), rec.arrive("a" + str(time.perf_counter_ns()))
    rec.admit(a)
    rec.hold(a, "kv")
    rec.release(a, "kv")
    rec.evict(a)
    rec.readmit(a)
    for _ in range(steps):
        t = rec.begin()
        rec.join(a)
        rec.enter(name, a)
        rec.leave()
        rec.prefill(1)
        rec.member(a)
        rec.window(name, t, t + 1, device=True)
        assert isinstance(rec.emit(), int)
        assert isinstance(rec.emit_some([]), int)
        rec.part(a)
        rec.end()
        rec.begin()
        rec.drop()
    rec.deliver(a)
    rec.probe(1)
    rec.restart()
    rec.pause(1, 2, 0)
    rec.fact("k", 1)
    rec.flush()
    rec.finish(a)


def test_methods_that_fail_inside_count_and_then_stop(
    recorder: Make, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rec = recorder()
    bad: Any = object()
    for call in (
        lambda: rec.arrive("x", bad), lambda: rec.admit(bad), lambda: rec.evict(bad), lambda: rec.hold(0, bad),
        lambda: rec.join(bad), lambda: rec.part([]), lambda: rec.probe(bad),  # type: ignore[arg-type]
        lambda: rec.prefill(bad), lambda: rec.prompt(bad, 1), lambda: rec.enter(0, bad),
    ):  # fmt: skip
        before = rec.errors + rec.refused
        call()
        assert rec.errors + rec.refused > before
    assert "recording stopped: 10 internal errors" not in capsys.readouterr().err or rec.errors >= 10
    while rec.errors < 10:
        rec.prefill(bad)
    use(rec)
    assert rec.errors == 10
    rec.close()
    read(log)


def test_a_step_that_cannot_be_packed_is_dropped_and_the_batch_goes_on(recorder: Make, log: Path) -> None:
    rec = recorder()
    a = rec.arrive("a")
    rec.begin()
    rec.join(a)
    rec.emit()
    rec.end(graph="eager")  # type: ignore[arg-type]
    assert (rec.dropped, rec.errors) == (1, 1)
    rec.begin()
    rec.emit()
    rec.end()
    rec.close()
    run = read(log)
    assert run.steps.id.tolist() == [1]
    assert len(run.emissions.step) == 1


def test_misuse_is_harmless(recorder: Make, log: Path) -> None:
    rec = recorder()
    name = rec.name("decode")
    rec.enter(name)  # outside a step
    rec.leave()
    rec.emit()
    rec.end()
    rec.begin()
    rec.enter(name)
    rec.begin()  # the one before was never ended
    rec.leave()
    rec.leave()
    rec.end()
    rec.end()
    rec.close()
    use(rec)  # after the end
    run = read(log)
    assert len(run.steps.id) == 1
    assert rec.dropped == 1
    assert not len(run.segments.t0)


def test_a_full_disk_stops_the_recording_not_the_engine(
    recorder: Make, log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rec = recorder()

    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    use(rec, 3_000)
    assert rec.dropped == 1
    assert capsys.readouterr().err.count("No space left on device") == 1
    use(rec)
    rec.close()
    assert 1_000 < len(read(log).steps.id) < 3_000


def test_a_real_limit_on_file_size(tmp_path: Path) -> None:
    """Past RLIMIT_FSIZE growing fails as on a full disk; a write to a hole would have killed the process."""
    code = textwrap.dedent(
        """
        import resource, sys
        from stallbook.record import Recorder
        rec = Recorder(sys.argv[1], engine="x", os_counters=None)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
        for _ in range(9_000):
            rec.begin(); rec.end()
        rec.close()
        print(rec.dropped)
        """
    )
    log = tmp_path / "x.stall"
    done = subprocess.run([sys.executable, "-c", code, str(log)], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"
    assert done.stderr.count("recording stopped") == 1
    assert len(read(log).steps.id) > 1_000


@pytest.mark.parametrize("place", ["posix_fallocate", "replace"])
def test_a_disk_that_is_full_from_the_start_leaves_no_log(
    recorder: Make, log: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(*((os, place) if place != "replace" else (Path, place)), full)
    with pytest.raises(OSError, match="No space"):
        recorder()
    assert not log.exists()
    log.mkdir()  # by somebody else: not ours to remove
    rec = recorder(strict=False)
    use(rec)
    rec.close()
    assert not list(log.iterdir())


def test_a_folder_that_cannot_be_made(recorder: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        Recorder(tmp_path / "file" / "x.stall", engine="x", strict=True)
    rec = Recorder(tmp_path / "file" / "x.stall", engine="x")
    use(rec)
    rec.close()
    assert capsys.readouterr().err.count("recording stopped") == 1


def test_a_log_is_not_overwritten(recorder: Make, log: Path) -> None:
    recorder().close()
    with pytest.raises(FileExistsError):
        recorder()


def test_the_kill_switch(recorder: Make, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STALLBOOK_RECORD", "0")
    with recorder() as rec:
        use(rec)
    assert not log.exists()


def test_a_forked_child_does_not_write_into_its_parents_log(recorder: Make, log: Path) -> None:
    rec = recorder(gc_pauses=True)
    use(rec)
    child = os.fork()
    if child == 0:
        try:
            use(rec, 5)
            rec.close()
        finally:
            os._exit(0 if rec.errors == 0 else 1)
    assert os.waitpid(child, 0)[1] == 0
    rec.begin()
    rec.end()
    rec.close()
    assert len(read(log).steps.id) == 2


def test_its_own_cost_is_known(recorder: Make, log: Path) -> None:
    rec = recorder(clock=time.perf_counter_ns)
    start = time.perf_counter_ns()
    for _ in range(500):
        rec.begin()
        rec.emit()
        rec.end()
    took = time.perf_counter_ns() - start
    assert rec.self_ns > 0
    assert took > 0
    rec.close()
    facts = read(log).facts
    assert facts["recorder"]["self_ns"] > 0
    assert facts["closed"]["self_ns"] >= facts["recorder"]["self_ns"]


CHILD = """
import itertools, os, sys
from stallbook.record import Recorder
rec = Recorder(sys.argv[1], engine="x", os_counters=None)
name = rec.name("decode")
live = []
for step in itertools.count():
    rec.begin()
    if step % 3 == 0:
        live.append(rec.arrive(f"r{step}"))
        rec.join(live[-1])
    rec.enter(name)
    rec.emit()
    if len(live) > 8:
        rec.finish(live.pop(0))
    rec.end(kv_tokens=step)
    os.write(1, b"%d\\n" % step)
"""


def kill_once(log: Path, delay: float) -> None:
    """Kill a recording process after a while; every step that it acknowledged must be there, whole."""
    with subprocess.Popen([sys.executable, "-c", CHILD, str(log)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        said = child.stdout.readline()
        end = time.monotonic() + delay
        while time.monotonic() < end:
            said += os.read(child.stdout.fileno(), 1 << 16)
        os.kill(child.pid, signal.SIGKILL)
        said += child.stdout.read()
    acknowledged = said[: said.rindex(b"\n")].split()
    run = read(log)
    assert len(run.steps.id) >= len(acknowledged)
    assert run.steps.id.tolist() == list(range(len(run.steps.id)))
    assert run.steps.kv_tokens.tolist() == run.steps.id.tolist()
    assert not run.notes.get("corrupt_bytes")
    batch = run.steps.decode_tokens
    assert len(run.emissions.step) == batch.sum()
    found = stallbook.partition(run).reconcile
    assert (found.max_error_ns, found.negative_parts) == (0, 0)


@pytest.mark.parametrize("kill", range(6))
def test_killed_at_a_random_moment(log: Path, kill: int) -> None:
    kill_once(log, 0.008 * kill**1.5)


@pytest.mark.slow
@pytest.mark.parametrize("kill", range(100))
def test_killed_a_hundred_times(log: Path, kill: int) -> None:
    kill_once(log, 0.37 * (kill * 0.618 % 1))


def test_soft_limits_are_untouched() -> None:
    """The tests above lowered a limit in a child only."""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 300_000
