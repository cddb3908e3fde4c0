"""Writing: whole or not at all, for the owner's eyes, and equal when it is read back."""

from __future__ import annotations

import dataclasses
import json
import stat
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from logfiles import SCENARIOS, difference, emit, load, of, segment, step

import stallbook
import stallbook.log
from stallbook.errors import StallbookError
from stallbook.log import jsonl_write
from stallbook.log.draft import Draft
from stallbook.run import CAPTURED, NEVER, ExplicitBaseline, Run


def everything() -> Draft:
    """A draft with something in every table and field."""
    draft = Draft(path="made", unit="row", engine="test é 1", boundary="frontend", records=frozenset({"gc", "os"}))
    draft.config, draft.facts = {"a": [1, {"b": None}]}, {"format": "made", "cost_ns": 5}
    draft.baseline, draft.wall_ns, draft.preemptions = ExplicitBaseline(1.5, 2.0, 0.25), 999, 4
    draft.notes["merged_pauses"] += 3
    a, b, c, d = (draft.request(name) for name in ("a", 'q"uo\\te', "ünï", "nobody"))
    decode, kv, engine, api = (draft.name(name) for name in ("decode", "kv", "engine", "api"))
    draft.add("arrivals", request=a, t=1, prompt_tokens=5, max_tokens=6)
    draft.add("arrivals", request=b, prompt_tokens=7)
    draft.add("admits", request=a, t=2)
    draft.add("finishes", request=c, t=90)
    draft.add("steps", id=-3, t0=0, t1=10, graph=CAPTURED, padded=4, decode_tokens=3, prefill_tokens=0, kv_tokens=9)
    draft.add("steps", id=8, t0=5, t1=30, run_delay=3, cpu=4)
    draft.add("steps", id=9, t0=6, t1=7)
    draft.add("members", step=-3, request=b)
    draft.add("members", step=-3, request=a)
    draft.add("members_known", step=9)
    draft.add("segments", step=8, name=decode, t0=6, t1=20, run_delay=2, request=b)
    draft.add("segments", step=-3, name=kv, device=1, t0=7, t1=50)
    draft.add("pauses", t0=1, t1=3, generation=2, process=engine)
    draft.add("pauses", t0=2, t1=3, process=api)
    draft.add("emits", step=-3, t=10, request=a, tokens=2)
    draft.add("emits", step=8, t=29, request=a, tokens=1)
    draft.add("emits", step=8, t=29, request=c, tokens=1)
    draft.add("evicts", request=a, t=11, recompute=1, lost_tokens=5)
    draft.add("readmits", request=a, t=12)
    draft.add("evicts", request=a, t=12)
    draft.add("evicts", request=c, t=28, recompute=0)
    draft.add("readmits", request=c, t=30)
    draft.add("holds", request=b, kind=kv, t0=3, t1=NEVER)
    draft.add("holds", request=a, kind=decode, t0=3, t1=4)
    draft.add("deliveries", request=a, t=40, tokens=2, boundary=0)
    draft.add("deliveries", request=a, t=41, tokens=2, boundary=1)
    draft.add("probes", t=5, ns=50)
    assert d == 3
    return draft


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz"])
def test_everything_survives(name: str, tmp_path: Path) -> None:
    run = everything().finish()
    assert run.notes == {
        "endless_evictions": 1, "emissions_in_eviction": 1, "merged_pauses": 3, "off_path_pauses": 1,
    }  # fmt: skip
    stallbook.write(run, tmp_path / name)
    again = stallbook.open(tmp_path / name)
    assert not difference(run, again)
    assert again.path == str(tmp_path / name)


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.name)
def test_scenarios_survive(path: Path, tmp_path: Path) -> None:
    run = stallbook.open(path)
    stallbook.write(run, tmp_path / "a.jsonl")
    assert not difference(run, stallbook.open(tmp_path / "a.jsonl"))


TIMES = st.integers(0, 60)
WHO = st.sampled_from(["a", "b", "é c"])


@st.composite
def logs(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Events of a sound log, in any order."""
    events: list[dict[str, Any]] = []
    t, stamp = 0, 0
    for number in range(draw(st.integers(0, 6))):
        t += draw(st.integers(0, 5))
        end = t + draw(st.integers(0, 9))
        rows = draw(st.integers(0, 3))
        more: dict[str, Any] = {"decode_tokens": rows} if draw(st.booleans()) else {}
        if draw(st.booleans()):
            more |= {"members": draw(st.lists(WHO, max_size=3)), "graph": draw(st.sampled_from(["captured", "none"]))}
            more |= {"padded": rows + draw(st.integers(0, 4)), "run_delay_ns": draw(st.integers(0, 9))}
        events.append(step(number * 2, t, end, **more))
        if draw(st.booleans()):
            stamp = max(stamp, t) + draw(st.integers(0, 9))
            events.append(emit(number * 2, stamp, **draw(st.dictionaries(WHO, st.integers(0, 3), max_size=3))))
        for _ in range(draw(st.integers(0, 3))):
            low = draw(st.integers(t, end))
            events.append(segment(number * 2, low, low, draw(st.sampled_from(["tok", "decode", "x"]))))
        events.append(segment(number * 2, t, end, lane=draw(st.sampled_from(["host", "device"]))))
    kinds = draw(st.lists(st.sampled_from(["evict", "readmit"]), max_size=9))
    events += [of(kind, draw(TIMES), draw(WHO)) for kind in kinds]
    for process in draw(st.lists(st.sampled_from(["worker:0", "worker:1", "api"]), max_size=5)):
        low = draw(TIMES)
        events.append({"e": "gc", "t0": low, "t1": low + draw(st.integers(0, 9)), "process": process})
    for kind in draw(st.lists(st.sampled_from(["kv", "lora"]), max_size=5)):
        low = draw(TIMES)
        end = draw(st.one_of(st.none(), st.integers(low, 70)))
        events.append({"e": "hold", "request": draw(WHO), "kind": kind, "t0": low, "t1": end})
    kinds = draw(st.lists(st.sampled_from(["frontend", "client"]), max_size=4))
    events += [of("deliver", draw(TIMES), draw(WHO), tokens=draw(st.integers(0, 2)), boundary=kind) for kind in kinds]
    return draw(st.permutations(events))


@given(events=logs())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_sound_log_opens_and_survives(events: list[dict[str, Any]], tmp_path: Path) -> None:
    run = load(tmp_path, *events)
    canonical(run)
    stallbook.write(run, tmp_path / "again.jsonl", force=True)
    assert not difference(run, stallbook.open(tmp_path / "again.jsonl"))
    assert not difference(run, load(tmp_path, *reversed(events)))


def canonical(run: Run) -> None:
    """What `run.py` promises."""
    assert sorted(run.steps.id.tolist()) == run.steps.id.tolist()
    pairs = list(zip(run.emissions.request.tolist(), run.emissions.step.tolist(), strict=True))
    assert pairs == sorted(set(pairs))
    assert (run.emissions.tokens >= 1).all()
    for table, groups in (
        (run.evictions, [run.evictions.request]), (run.pauses, [run.pauses.process]),
        (run.holds, [run.holds.request, run.holds.kind]),
    ):  # fmt: skip
        windows: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        for i in range(len(table.t0)):
            key = tuple(int(group[i]) for group in groups)
            windows.setdefault(key, []).append((int(table.t0[i]), int(table.t1[i])))
        for mine in windows.values():
            assert mine == sorted(mine)
            assert all(before[1] <= after[0] for before, after in pairwise(mine))
    for table in (run.segments, run.pauses, run.holds, run.probes):
        starts = (table.t if table is run.probes else table.t0).tolist()
        assert starts == sorted(starts)
    members = run.members
    assert members.start[-1] == len(members.request)
    for i in range(len(run.steps.id)):
        batch = members.request[members.start[i] : members.start[i + 1]].tolist()
        assert batch == sorted(set(batch))


def test_output_is_private_and_not_overwritten(tmp_path: Path) -> None:
    run = stallbook.open(SCENARIOS[0])
    path = tmp_path / "a.jsonl"
    stallbook.write(run, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_bytes()
    with pytest.raises(StallbookError, match="--force") as caught:
        stallbook.write(stallbook.open(SCENARIOS[1]), path)
    assert caught.value.slug == "exists"
    assert path.read_bytes() == before
    stallbook.write(stallbook.open(SCENARIOS[1]), path, force=True)
    assert path.read_bytes() != before
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_half_written_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: Run) -> Iterator[str]:
        yield "x" * 100_000
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(jsonl_write, "json_lines", full)
    for name in ("a.jsonl", "a.jsonl.gz"):
        with pytest.raises(StallbookError, match="No space left on device") as caught:
            stallbook.write(stallbook.open(SCENARIOS[0]), tmp_path / name)
        assert caught.value.slug == "unwritable"
    assert not list(tmp_path.iterdir())


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    run = stallbook.open(SCENARIOS[0])
    for name, slug in (("no/such/a.jsonl", "unwritable"), ("a.csv", "suffix"), ("jsonl", "suffix")):
        with pytest.raises(StallbookError) as caught:
            stallbook.write(run, tmp_path / name)
        assert caught.value.slug == slug
    (tmp_path / "d.jsonl").mkdir()
    with pytest.raises(StallbookError, match="folder"):
        stallbook.write(run, tmp_path / "d.jsonl", force=True)
    with pytest.raises(StallbookError, match="cannot be written"):
        stallbook.write(dataclasses.replace(run, config={"a": float("nan")}), tmp_path / "a.jsonl")


def test_the_file_is_the_interchange_format(tmp_path: Path) -> None:
    stallbook.write(everything().finish(), tmp_path / "a.jsonl")
    header, *lines = (json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines())
    assert (header["stallbook"], header["wall_ns"], header["preemptions"]) == (1, 999, 4)
    assert header["notes"] == {"merged_pauses": 3}  # what is kept is counted anew
    assert {"e": "step", "id": 9, "t0": 6, "t1": 7, "members": []} in lines
    assert {"e": "arrive", "request": "nobody", "t": None} in lines
    assert {"e": "emit", "step": 8, "t": 29, "tokens": {"a": 1, "ünï": 1}} in lines
