"""Whose prompts a gap waited for, held against the slow partition."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import stallbook as sb
from cases.build import MS, Event, dec, evict, scaled, seg, start, step
from randomlog import KINDS as LOGS
from randomlog import random_log
from slow import Parts, Slow
from slow_log import Log, Segment
from stallbook.prompts import KINDS, prompts
from stallbook.report import report
from stallbook.run import ExplicitBaseline
from test_partition import STAND_IN, Key, key_of, opened

SEEDS = 60


class Asking(Slow):
    """Charges prefill to its owner as the request sees it: `prefill KIND`."""

    who = ""

    def charge(self, request: str, *where: Any, **how: Any) -> dict[str | None, Parts]:
        self.who = request
        return super().charge(request, *where, **how)

    def charge_piece(self, unit: Any, windows: Iterable[int], parts: Parts) -> None:
        mine: Parts = defaultdict(int)
        super().charge_piece(unit, windows, mine)
        for cause, ns in mine.items():
            parts[f"prefill {self.kind(unit)}" if cause == "prefill" else cause] += ns

    def kind(self, unit: Any) -> str:
        if not isinstance(unit, Segment) or unit.request is None:
            return "not recorded whose"
        own = "its own" if unit.request == self.who else "another's"
        emitted = [self.stamps[i] for i, _ in self.log.emits_of.get(unit.request, [])]
        dropped = [e["t"] for e in self.log.of["evict"] if e["request"] == unit.request and e["mode"] == "recompute"]
        return own + (", again" if any(t <= unit.t0 for t in emitted + dropped) else "")


def fast(events: list[Event], folder: Path, rules: Any = "full") -> dict[Key, tuple[bool, dict[str, int]]]:
    """By gap: whether it shares its row with other requests' gaps, and whose prompts it waited for."""
    p = sb.partition(opened(events, folder), rules, ExplicitBaseline(**(events[0].get("baseline") or STAND_IN)))
    table = prompts(p)
    assert (table >= 0).all()
    assert (table.sum(axis=1) == p.rows[:, p.causes.index("prefill")]).all()
    keys = zip(p.gaps.request, p.run.steps.id[p.gaps.step_to], p.gaps.t0, p.gaps.t1, strict=True)
    return {
        (p.run.requests.names[r], int(s), int(t0), int(t1)): (
            bool(row < len(p.rhythm.emit)),
            dict(zip(KINDS, table[row].tolist(), strict=True)),
        )
        for (r, s, t0, t1), row in zip(keys, p.row_of_gap, strict=True)
    }


@pytest.mark.parametrize("kind", LOGS)
@pytest.mark.parametrize("rules", ["full", "post"])
def test_random_logs(kind: str, rules: str, tmp_path: Path) -> None:
    seen = 0
    for seed in range(SEEDS):
        events = random_log(random.Random(f"{kind} {seed}"), kind)
        slow = {key_of(g): g.parts for g in Asking(Log(events), rules, events[0].get("baseline") or STAND_IN).gaps()}
        for key, (shared, mine) in fast(events, tmp_path, rules).items():
            want = {kind: slow[key].get(f"prefill {kind}", 0) for kind in KINDS}
            if shared:  # of a request that was never away: that its own prompt ran meanwhile, only random logs say
                for kind in ("", ", again"):
                    want[f"another's{kind}"] += want.pop(f"its own{kind}")
            for what, ns in mine.items():
                seen += ns > 0
                assert abs(ns - want.get(what, 0)) <= 2 * (1 + shared), (seed, key, what, mine, want)
    assert seen


def a_log() -> list[Event]:
    """`b` loses its cache at 10 and computes it again until 50; `c` is new; `a` waits for both, `b` for `c` alone."""
    rows = [
        start(0, "ab"),
        step(1, 0, 10, dec(0, 10), emit=10, to="ab"),
        [e | ({"mode": "recompute"} if e["e"] == "evict" else {}) for e in evict("b", 10, 20)],
        step(2, 10, 50, seg("prefill", 20, 50, of="b"), n=0, prefill=30),
        step(3, 50, 70, seg("prefill", 50, 60, of="c"), dec(60, 70), prefill=10, emit=70, to="abc"),
    ]
    head = {"stallbook": 1, "engine": "x", "records": ["segments", "evictions"]}
    line = {"fixed_ns": 10 * MS, "row_ns": 0, "kv_token_ns": 0}
    return [head | {"baseline": line}, *(scaled(e, MS) for row in rows for e in row)]


def test_a_neighbours_recomputation_and_its_own(tmp_path: Path) -> None:
    found = {(r, t0 // MS): told for (r, _, t0, _), (_, told) in fast(a_log(), tmp_path).items()}
    some = {kind: {k: ns // MS for k, ns in told.items() if ns} for kind, told in found.items()}
    assert some["a", 10] == {"another's": 10, "another's, again": 30}
    assert some["b", 10] == {"another's": 10, "its own, again": 30}
    assert some["a", 0] == {}


def test_the_report_tells_it(tmp_path: Path) -> None:
    drawn = report(opened(a_log(), tmp_path))
    told = drawn.as_dict()["prompts_ms"]
    assert told["all"] == {
        "another's": 20.0, "its own": 0.0, "another's, again": 30.0, "its own, again": 30.0, "not recorded whose": 0.0,
    }  # fmt: skip
    assert told["tail"]["its own, again"] == 30.0
    text = " ".join(str(drawn).split())
    assert "Whose prompts the gaps waited for" in text
    assert "80.0 ms in all gaps another's, again 37.5%, its own, again 37.5%, another's 25.0%" in text
    assert drawn.as_dict()["all"]["share"]["prefill"] == pytest.approx(80 / 140)


def test_new_prompts_of_others_go_without_saying(tmp_path: Path) -> None:
    events = [e for e in a_log() if not (e.get("name") == "prefill" and e["request"] == "b")]
    drawn = report(opened(events, tmp_path))
    assert drawn.as_dict()["prompts_ms"]["all"]["another's"] == 20.0
    assert "Whose prompts" not in str(drawn)


def test_where_no_owner_is_on_record_nothing_is_said(tmp_path: Path) -> None:
    events = [e | {"request": None} if e.get("name") == "prefill" else e for e in a_log()]
    drawn = report(opened(events, tmp_path))
    assert drawn.as_dict()["prompts_ms"] is None
    assert "Whose prompts" not in str(drawn)
