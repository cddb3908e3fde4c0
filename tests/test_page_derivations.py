"""What the page draws: stalls lane by lane, the run in bins, single events. All of it adds up to what was reported."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent / "report"))
from page_logs import MS, Lines, busy, overloaded, partitioned, step

from stallbook.incidents import find_incidents
from stallbook.log import open_run
from stallbook.overtime import MOST_BINS, occupied, over_time
from stallbook.partition import Partition, partition
from stallbook.scene import Scene, find_scenes
from stallbook.stalls import KEPT, Stall, find_stalls
from stallbook.waits import boundary_gaps

GOLDEN = sorted((Path(__file__).parent / "data" / "golden").glob("*s?.npz"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Partition:
    return partitioned(tmp_path_factory.mktemp("made"), overloaded())


def charged(scene: Scene) -> dict[str, int]:
    told: dict[str, int] = {}
    for piece in scene.lanes[0].pieces:
        for cause, ns in piece.parts.items():
            told[cause] = told.get(cause, 0) + ns
    return told


def scenes(p: Partition, boundary: str = "engine") -> list[tuple[Stall, Scene]]:
    waits = None if boundary == "engine" else boundary_gaps(p, boundary)
    found = find_stalls(p, waits, boundary)
    worst = (*found.worst, *found.of_causes)
    return list(zip(worst, find_scenes(p, worst, boundary), strict=True))


def check(told: list[tuple[Stall, Scene]]) -> None:
    assert told
    for stall, scene in told:
        assert scene.lanes[0].name == "charged"
        assert charged(scene) == stall.parts_ns
        at = 0
        for piece in scene.lanes[0].pieces:
            assert piece.t0 == at
            assert sum(piece.parts.values()) == piece.t1 - piece.t0
            at = piece.t1
        assert at == scene.length == stall.length_ns
        for lane in scene.lanes[1:]:
            for piece in lane.pieces:
                assert -scene.around <= piece.t0 <= piece.t1 <= scene.length + scene.around
                assert sum(piece.parts.values()) <= piece.t1 - piece.t0
            assert len(lane.pieces) <= 120


@pytest.mark.parametrize("path", GOLDEN, ids=lambda p: p.stem)
@pytest.mark.parametrize("rules", ["full", "post"])
def test_the_first_lane_is_the_stall_to_the_nanosecond(path: Path, rules: str) -> None:
    check(scenes(partition(open_run(path), rules)))  # type: ignore[arg-type]


def test_the_first_lane_of_a_delivery_ends_with_what_passed_after_emission(tmp_path: Path) -> None:
    lines = busy()
    for line in [one for one in lines if one["e"] == "emit"]:
        told = {"e": "deliver", "request": "r0", "tokens": 1}
        lines.append({**told, "t": line["t"] + MS, "boundary": "frontend"})
        lines.append({**told, "t": line["t"] + (40 if line["step"] == 20 else 2) * MS, "boundary": "client"})
    told = scenes(partitioned(tmp_path, lines), "client")
    check(told)
    assert any("network" in scene.lanes[0].pieces[-1].parts for _, scene in told)


def test_who_stood_still(made: Partition) -> None:
    told = {stall.primary: (stall, scene) for stall, scene in reversed(scenes(made))}
    collected, alone = told["gc"], told["preempt"]
    assert collected[0].scope == "all"
    assert all(s.still[1] - s.still[0] == collected[0].length_ns for s in collected[1].others)
    assert any(lane.name == "collections, engine" and lane.pieces for lane in collected[1].lanes)
    assert alone[0].scope == "one"
    assert alone[1].own.request == alone[0].request == "b"
    assert all(2 * (s.still[1] - s.still[0]) < alone[0].length_ns for s in alone[1].others)
    assert {0, alone[0].length_ns} <= {end for flow in alone[1].own.flows for end in flow}
    assert not any(0 < a < alone[0].length_ns for a, _ in alone[1].own.flows)


def test_each_cause_that_leads_a_gap_has_its_worst_told(tmp_path: Path) -> None:
    lines = busy(steps=(KEPT + 5) * 10)
    end = max(line["t1"] for line in lines if line["e"] == "step")
    lines.append({"e": "gc", "t0": end + MS, "t1": end + 31 * MS, "generation": 2, "process": "engine"})
    step(lines, 10_000, end + 32 * MS, ["r0", "r1", "r2"])
    found = find_stalls(partitioned(tmp_path, lines))
    assert len(found.worst) == KEPT
    assert {s.primary for s in found.worst} == {"prefill"}
    assert [s.primary for s in found.of_causes] == ["gc", "clean"]
    assert found.of_causes[0].length_ns == 42 * MS


@pytest.mark.parametrize("path", GOLDEN, ids=lambda p: p.stem)
def test_the_bins_hold_every_gap_and_all_its_time(path: Path) -> None:
    p = partition(open_run(path))
    o = over_time(p)
    assert len(o) <= MOST_BINS + 1
    assert int(o.gaps.sum()) == int(p.row_weight.sum())
    gap = p.gaps.t1 - p.gaps.t0
    assert np.nanmax(o.max) == pytest.approx(gap.max() / 1e6)
    busy_bins = o.gaps > 0
    assert np.allclose(o.share[busy_bins].sum(axis=1), 1)
    assert np.isnan(o.p50[~busy_bins]).all()
    ends = (p.gaps.t1 - (p.gaps.t1.min() - gap[p.gaps.t1.argmin()])) / 1e9
    assert ends.max() <= o.edges_s[-1] + 1e-6
    assert o.queued is None  # these logs know no admission


def test_a_bin_has_the_percentiles_of_the_gaps_that_end_in_it(made: Partition) -> None:
    o, gaps = over_time(made), made.gaps
    origin = int(made.run.requests.arrive.min())
    bins = np.searchsorted(o.edges_s, (gaps.t1 - origin) / 1e9, "right") - 1
    for i in np.unique(bins):
        mine = (gaps.t1 - gaps.t0)[bins == i] / 1e6
        assert o.p99[i] == pytest.approx(np.percentile(mine, 99))
        assert o.p50[i] == pytest.approx(np.percentile(mine, 50))


def test_requests_are_counted_over_time(made: Partition) -> None:
    o, r = over_time(made), made.run.requests
    width = np.diff(o.edges_s)
    assert o.queued is not None
    assert o.evicted is not None
    waited = (r.admit - r.arrive).sum() / 1e9
    assert (o.queued * width).sum() == pytest.approx(waited)
    away = (made.run.evictions.t1 - made.run.evictions.t0).sum() / 1e9
    assert (o.evicted * width).sum() == pytest.approx(away)
    assert o.batch is not None
    assert np.nanmax(o.batch) <= 4


def test_occupied_counts_overlaps() -> None:
    rng = np.random.default_rng(3)
    t0 = rng.integers(0, 1000, 40)
    t1 = t0 + rng.integers(0, 300, 40)
    edges = np.array([0, 100, 250, 251, 900, 2000])
    slow = [
        sum(max(0, min(b, hi) - max(a, lo)) for a, b in zip(t0, t1, strict=True))
        for lo, hi in itertools.pairwise(edges)
    ]
    assert occupied(t0, t1, edges).tolist() == slow


def test_single_events(made: Partition, tmp_path: Path) -> None:
    found = find_incidents(made)
    assert found.collected is not None
    assert [(c.generation, c.count, c.longest_ms) for c in found.collected] == [(2, 1, 150.0)]
    assert found.collections[0].length_ms == 150.0
    assert found.evictions is not None
    assert [(e.request, e.kind, e.lost_tokens) for e in found.evictions] == [("b", "swapped out", None)]
    assert [path.path for path in found.paths] == ["captured", "eager"]
    assert found.paths[1].ratio is not None
    assert found.paths[1].ratio > 2
    assert sum(path.steps for path in found.paths) == 160
    assert {s.size for s in found.sizes} <= {2, 3, 4}
    lines: Lines = [line for line in busy() if line["e"] != "gc"]
    bare = find_incidents(partitioned(tmp_path, lines, records=["segments"]))
    assert bare.collected is None
    assert bare.evictions is None
