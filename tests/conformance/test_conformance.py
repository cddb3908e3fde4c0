"""A toy engine with an adapter of eighty lines passes the suite; and the suite finds what an adapter gets wrong."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "adapters.md"
sys.path.insert(0, str(HERE))

import toy_harness  # noqa: E402

from stallbook.adapters.attach import launched  # noqa: E402
from stallbook.adapters.hooks import Hooks  # noqa: E402
from stallbook.conformance import Finding, Limits, Outcome, Script, conform, evidence, suite  # noqa: E402
from stallbook.conformance.__main__ import main  # noqa: E402
from stallbook.conformance.evidence import Evidence, account, own_words  # noqa: E402
from stallbook.conformance.hindered import hindered  # noqa: E402
from stallbook.conformance.suite import Seen, _await, _whole  # noqa: E402
from stallbook.record import Recorder  # noqa: E402

SHORT = Script(requests=24, prompts=(8, 60), answers=(16, 40), at_once=8)
ANY = Limits(residual=0.5, tail=1.0, cost=0.1)
"""What a test may take of a machine that does other things too."""


class Toy(toy_harness.Toy):
    """With a shorter script."""

    script, limits = SHORT, ANY


@pytest.mark.slow
def test_the_toy_passes(tmp_path: Path) -> None:
    outcome = conform(Toy(), tmp_path)
    print(outcome.table())
    assert not outcome.failed
    assert len(outcome.findings) == 21
    assert {one.part for one in outcome.findings} == {"serving", "killed", "hindered"}
    assert outcome.held
    shown = re.findall(r"^  holds +(.+?)  ", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert shown == [one.name for one in outcome.findings], "the page shows another suite"


WRONG: Mapping[str, tuple[str, str, str]] = {
    "an eviction is missed": ('("preempt", self.evicts, None), ', "", "preemptions"),
    "a token is missed": ("if request.name not in self.running:", "if len(self.running) < 3:", "tokens"),
    "segments are missed": ("self.rec.enter(self.decode)", "self.rec.leave()", "residual of all gaps"),
    "a hook does not exist": ('("forward", None, self.emits)', '("forwards", None, self.emits)', "tokens"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_found(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, after, check = WRONG[what]
    text = (HERE / "toy_adapter.py").read_text()
    assert text.count(before) == 1
    (tmp_path / "toy_adapter.py").write_text(text.replace(before, after))
    (tmp_path / "toy_engine.py").write_text((HERE / "toy_engine.py").read_text())
    monkeypatch.setattr(toy_harness, "HERE", tmp_path)
    outcome = conform(Toy(), tmp_path / "out", only=["serving"])
    assert check in [one.name for one in outcome.failed], outcome.table()
    assert not outcome.held


def test_the_command_says_what_fails(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(
        "from stallbook.conformance import Limits, Script\n\n\n"
        "class Broken:\n"
        '    name, script, limits = "broken 1", Script(), Limits()\n\n'
        "    def start(self, folder, log, environment):\n"
        '        raise RuntimeError("it does not start")\n\n\n'
        "ENGINE = Broken()\n"
    )
    command = [sys.executable, "-m", "stallbook.conformance", "broken:ENGINE", "--only", "serving"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "FAILS" in done.stdout
    assert "RuntimeError: it does not start (broken.py:8)" in done.stdout
    assert "Raised by the harness" in done.stdout
    assert "with --folder FOLDER they are" in done.stdout
    assert "0 hold, 1 fail, 0 not tried" in done.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["no_such_module:ENGINE"], "no_such_module:ENGINE: No module named"),
        (["toy_harness:NOTHING"], "toy_harness:NOTHING: module 'toy_harness' has no attribute 'NOTHING'"),
        (["toy_harness:ENGINE", "--only", "killed", "--folder", "."], "is of another run; give a new folder"),
    ],
)
def test_what_an_author_gets_wrong(
    words: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "killed").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", ["conformance", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_what_fails_says_where_to_look_and_what_holds_does_not() -> None:
    found = [Finding("serving", "tokens", held, "as counted") for held in (True, False)]
    lines = Outcome("toy", found).table().splitlines()
    assert [line.split()[0] for line in lines[3:6]] == ["holds", "FAILS", "Fewer"]


@pytest.mark.parametrize(
    ("step_ms", "spent_us", "holds"),
    [(20, 98, True), (20, 102, False), (10, 50, True), (10, 51, False), (2, 48, True), (2, 52, False)],
)
def test_the_account_is_held_to_a_share_and_in_short_steps_to_a_time(step_ms: int, spent_us: int, holds: bool) -> None:
    ends = np.arange(1, 11) * step_ms * 1_000_000
    steps = SimpleNamespace(t0=ends - step_ms * 1_000_000, t1=ends, emit=ends)
    books = {"closed": {"self_ns": 10 * spent_us * 1_000}, "api:0.recorder": {"self_ns": 1 << 40}}
    found = account(Evidence(cast(Any, (SimpleNamespace(steps=steps, facts=books),)), ()), Limits())
    assert found[1] is holds, found
    assert f"engine {spent_us / step_ms / 10:.2f}%, {spent_us} us a step; at most 0.5% of" in found[2]


@pytest.mark.parametrize(
    ("notes", "told"),
    [
        ({"untold_notes": 2}, "2 untold notes"),
        ({"unknown_handles": 1, "refused_values": 3}, "1 unknown handles; the log's reader: 3 refused values"),
        ({"refused_steps": 1}, "1 refused steps"),
        ({"unfinished_steps": 4}, "4 unfinished steps"),
        ({"corrupt_bytes": 70}, "70 corrupt bytes"),
        ({"stray_readmits": 1}, "1 stray readmits"),
    ],
)
def test_what_the_log_s_reader_could_not_use_is_lost(notes: dict[str, int], told: str) -> None:
    runs = cast(Any, tuple(SimpleNamespace(facts={}, notes=one) for one in ({}, notes)))  # of several logs, one
    found = next(own_words(Evidence(runs, ())))
    assert found == ("nothing lost", False, f"0 dropped, 0 errors, 0 refused; the log's reader: {told}")


@pytest.mark.parametrize(
    "notes", [{}, {"untold_notes": 0, "refused_values": 0}, {"merged_pauses": 3, "emissions_in_eviction": 1}]
)
def test_what_is_natural_in_a_log_is_not_lost(notes: dict[str, int]) -> None:
    run = cast(Any, SimpleNamespace(facts={}, notes=notes))
    assert next(own_words(Evidence((run,), ()))) == ("nothing lost", True, "0 dropped, 0 errors, 0 refused")


TOKENS, STEP_NS = 20, 10_000_000
LAST_NS = TOKENS * STEP_NS
SECOND = 1_000_000_000


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """A log of a request's tokens, one a step of 10 ms, the first after one, the last at `LAST_NS`."""
    rec = Recorder(tmp_path / "out.stall", engine="test")
    handle = rec.arrive("a", t=0)
    for step in range(TOKENS):
        rec.begin(t=step * STEP_NS)
        if not step:
            rec.join(handle)
        rec.emit(t=(step + 1) * STEP_NS)
        rec.end(t=(step + 1) * STEP_NS)
    rec.close()
    return tmp_path / "out.stall"


@pytest.mark.parametrize(
    ("kill_s", "seen", "held", "told"),
    [
        (0.5, Seen(TOKENS, LAST_NS), True, "the last token 0.50 s before the kill"),
        (-0.1, Seen(15, LAST_NS), True, "the last token 0.10 s after the kill"),  # of another process than the engine
        (2.0, Seen(TOKENS, LAST_NS), True, "the last token 2.00 s before the kill"),
        (2.2, Seen(TOKENS, LAST_NS), False, "tokens came to be in the log 2.20 s late, at most 2.10 s"),
        (0.1, Seen(5, 6 * STEP_NS + 2 * SECOND), True, "0.10 s before the kill"),
        (0.1, Seen(5, 6 * STEP_NS + 3 * SECOND), False, "tokens came to be in the log 3.00 s late, at most 2.10 s"),
        (9.0, Seen(TOKENS, 9 * SECOND, "at rest"), None, "at rest; 19 gaps, 0 ns off"),
        (9.0, Seen(0, 9 * SECOND, "at rest"), False, "tokens came to be in the log 8.99 s late, at most 2.10 s"),
    ],
)
def test_tokens_come_to_be_in_the_log_in_time(left: Path, kill_s: float, seen: Seen, held: object, told: str) -> None:
    found, said = _whole(left, LAST_NS + int(kill_s * SECOND), seen)
    assert found is held, said
    assert told in said
    assert (" late, " in said) is (held is False)


def test_a_log_without_a_token_is_no_remnant(tmp_path: Path) -> None:
    Recorder(tmp_path / "out.stall", engine="test").close()
    assert _whole(tmp_path / "out.stall", 0, Seen(0, 0)) == (False, "0 gaps, 0 ns off, 0 negative parts")
    assert _whole(tmp_path / "out.stall", 0, Seen(0, 0, "at rest"))[0] is False


def _thread(ends: threading.Event) -> threading.Thread:
    thread = threading.Thread(target=ends.wait, args=(60,), daemon=True)
    thread.start()
    return thread


def test_a_mark_is_awaited_amid_the_load_only(left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = threading.Event()
    load = _thread(ends)
    before = time.perf_counter_ns()
    found = _await(left, TOKENS, load)
    assert (found.tokens, found.missed) == (TOKENS, "")
    assert before <= found.at <= time.perf_counter_ns()
    monkeypatch.setattr(suite, "_PATIENCE_S", 0)
    found = _await(left, TOKENS + 1, load)
    assert (found.tokens, found.missed) == (TOKENS, "not so far after 0 s")
    ends.set()
    load.join()
    assert "the load was over" in _await(left, 1, load).missed


def test_a_load_that_ends_during_a_look_was_over(left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = threading.Event()
    load = _thread(ends)

    def look(log: Path) -> int:
        ends.set()
        load.join()
        return TOKENS

    monkeypatch.setattr(evidence, "tokens", look)
    assert "the load was over" in _await(left, TOKENS, load).missed


def test_an_engine_killed_at_rest_was_not_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "_MOMENTS", (1.5,))  # never reached
    (found,) = conform(Toy(), tmp_path, only=["killed"]).findings
    assert (found.name, found.held) == ("engine, after 150% of the script", None), found
    assert found.said.startswith("killed at rest, the load was over; ")
    assert "the last token" in found.said


def test_a_hook_that_failed_in_silence_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    Hooks().call(lambda: {}["no such request"])
    heard = capsys.readouterr().err.splitlines()
    name, held, said = next(own_words(Evidence((), ()), heard))
    assert (name, held) == ("nothing lost", False)
    assert "KeyError: 'no such request'" in said
    assert next(own_words(Evidence((), ()), ["stallbook: a.stall exists, so this recording goes to a-2.stall"]))[1]


@pytest.mark.parametrize("loaded", ["import stallbook.record", "pass"])
def test_a_fault_is_planted_under_attach_too(loaded: str, tmp_path: Path) -> None:
    """Both bring a `sitecustomize`; each gives way to those behind it, and so to a third one."""
    third = tmp_path / "third"
    third.mkdir()
    (third / "sitecustomize.py").write_text("print('the third one')\n")
    info = tmp_path / "theirs-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[stallbook.adapters]\ntheirs = theirs:register\n")
    (tmp_path / "theirs.py").write_text(f"{loaded}\ndef register(): print('registered')\n")
    with hindered("a hook that raises", tmp_path) as case:
        assert case is not None
        path = os.pathsep.join([case.environment["PYTHONPATH"], str(tmp_path), str(third)])
        code = "from stallbook.record import Recorder; print(Recorder.admit.__name__)"
        told = launched({**os.environ, "PYTHONPATH": path}, tmp_path / "a.stall")
        done = subprocess.run([sys.executable, "-c", code], env=told, capture_output=True, text=True, check=False)
    assert (done.stdout.split("\n")[:-1], done.stderr) == (["registered", "the third one", "raises"], "")
