"""Studies on planted costs: what they must say is known by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf
from pathlib import Path

import numpy as np
import pytest

from stallbook.cli import main
from stallbook.demo import Settings
from stallbook.errors import StallbookError
from stallbook.predict.costs import CAPTURED_TERMS, TOKEN, DemoCosts
from stallbook.predict.laws import Law
from stallbook.predict.model import Engine
from stallbook.predict.pace import Noise
from stallbook.predict.ports import Request
from stallbook.predict.speed import Waits
from stallbook.predict.studies import STUDIES, Asked, Study, disaggregate, floor, watermark
from stallbook.predict.studies.queue import erlang_c, mean_wait
from stallbook.report.studied import dumps

LOG = Path(__file__).parents[1] / "data" / "predict" / "swap.jsonl.gz"
MS = 1_000_000.0


def planted(*requests: Request, step: float = 0.0, swaps: int = 1, **more: object) -> Engine:
    """Decode 1 ms a padded row, prefill 10 us a token, a copied token 1 us, `step` ns of planning a step."""
    laws = {
        "captured": Law(CAPTURED_TERMS, (0.0, MS, 0.0, 0.0, 0.0)),
        "eager": Law(("row", "kv token"), (2 * MS, 0.0)),
        "prefill": Law(("chunk", TOKEN, "token beyond 1024"), (0.0, 10_000.0, 0.0)),
        "swap_out": Law(("copy", "token"), (0.0, 1000.0), swaps),
        "swap_in": Law(("copy", "token"), (0.0, 1000.0), swaps),
        "sched": Law(("step", "row", "chunk"), (step, 0.0, 0.0)),
        "output": Law(("step", "row"), (0.0, 0.0)),
        "close": Law(("step", "row"), (0.0, 0.0)),
    }
    none = np.zeros(0, np.int64)
    settings = Settings(**{"seconds": 30.0, "rate": 2.0, "gc_freeze": False, **more})  # type: ignore[arg-type]
    noise = Noise(none, none * 1.0, none, *[none * 1.0] * 3)
    return Engine(settings, requests, DemoCosts(laws, {}), None, None, Waits(none, none), noise)


def crowd(count: int = 40, every_ms: float = 30.0) -> tuple[Request, ...]:
    return tuple(Request(f"r{i}", int(i * every_ms * 1e6), 100 + 37 * i % 400, 20 + 53 * i % 300) for i in range(count))


def made(name: str, engine: Engine, **more: int) -> Study:
    return STUDIES[name](Asked(engine, "x.stall", **{"draws": 1, **more}))


def test_erlang() -> None:
    assert erlang_c(2.0, 3) == pytest.approx(4 / 9)
    assert erlang_c(0.0, 3) == 0.0
    assert erlang_c(0.6, 1) == pytest.approx(0.6)
    assert mean_wait(0.6, 1.0, 1) == pytest.approx(1.5)
    assert mean_wait(0.6, 1.0, 1, variation=0.0) == pytest.approx(0.75)
    assert mean_wait(3.0, 1.0, 3) == inf
    assert mean_wait(1.0, 1.0, 0) == inf


def test_a_pass_ten_times_faster_leaves_the_rest_of_the_step() -> None:
    study = made("floor", planted(Request("a", 0, 50, 400), step=0.5 * MS))
    for fast in (1.0, 10.0, 50.0):
        point = study.at(floor.SAME, fast)
        assert point["itl.p50"] == pytest.approx(0.5 + 1 / fast)
        assert point["floor"] == pytest.approx(0.5 / (0.5 + 1 / fast), rel=0.01)


def test_load_that_grows_as_fast_meets_the_floor() -> None:
    study = made("floor", planted(*crowd(), step=2 * MS))
    slow, fast = (study.at(floor.STEEPER, n)["tokens_per_s"] for n in (1.0, 50.0))
    assert slow < fast < 25 * slow


def test_a_prefill_stalls_a_chunked_engine_and_no_disaggregated_one() -> None:
    """Two requests on each chunked engine: a decodes while b, of 2,000 tokens, comes in."""
    pair = [Request("a", 0, 10, 200), Request("a2", 0, 10, 200)]
    late = [Request("b", 50_000_000, 2000, 10), Request("b2", 50_000_000, 2000, 10)]
    study = made("disaggregate", planted(*pair, *late))
    whole = study.at(disaggregate.chunked(2048), 1.0)
    small = study.at(disaggregate.chunked(128), 1.0)
    split = study.at(disaggregate.SPLIT, 1.0)
    assert whole["itl.p99.9"] > 15  # most of the 20 ms of b's prefill in one gap
    assert 1.5 < small["itl.p99"] < 4  # 127 tokens of it at most, and two rows
    assert split["itl.p99.9"] < 2 + 4 + 4 + 4 + 0.1  # b's: sent, a step, both caches copied in, a step of four rows
    assert split["itl.p50"] >= whole["itl.p50"]  # all four decode on one engine


def test_the_second_token_waits_for_the_link() -> None:
    study = made("disaggregate", planted(Request("a", 0, 99, 2)))
    assert study.at(disaggregate.SPLIT, 1.0)["itl.p50"] == pytest.approx(0.1 + 0.1 + 1.0, abs=0.09)
    assert study.at(disaggregate.SLOW, 1.0)["itl.p50"] == pytest.approx(1.0 + 1.0 + 1.0, abs=0.09)
    assert study.at(disaggregate.SPLIT, 1.0)["ttft.p50"] == pytest.approx(0.99 + 1.0, abs=0.09)


def test_swap_costs_its_copies_and_recompute_its_prefill() -> None:
    study = made("swap", planted(*crowd(), kv_blocks=400, token_budget=256))
    assert "takes 1.20 ms to copy out and back and 7.1 ms to compute again: copies 6 times slower" in study.found[0]
    least = min(p.x for p in study.points)
    assert study.at("swap", least)["preemptions"] > 0
    assert study.at("recompute", least)["redone"] > 0
    assert study.at("swap", least)["redone"] == 0
    more = study.at("swap, copies 100x", least)
    assert more["tokens_per_s"] < study.at("swap", least)["tokens_per_s"]


def test_a_run_without_swaps_cannot_price_them() -> None:
    with pytest.raises(StallbookError, match="holds no swap"):
        made("swap", planted(*crowd(3), swaps=0))


def test_a_watermark_takes_evictions_and_a_forecast_all_of_them() -> None:
    study = made("watermark", planted(*crowd(40, 120), kv_blocks=250))
    none, high = study.at(watermark.FREE, 0.0), study.at(watermark.FREE, 0.3)
    known = study.at(watermark.FORECAST, 0.0)
    assert none["preemptions"] > high["preemptions"]
    assert known["preemptions"] == 0
    assert known["admitted.mean"] < study.at(watermark.FORECAST, 0.3)["admitted.mean"]
    assert none["places"] > high["places"] > 0


def test_the_formula_is_fed_with_what_requests_held() -> None:
    """One request at a time: 15 ms of service every 30 ms on one of many places."""
    alone = [Request(f"r{i}", i * 30_000_000, 16, 14) for i in range(300)]
    point = made("watermark", planted(*alone)).at(watermark.FREE, 0.0)
    assert point["load.mean"] == pytest.approx(14.16 / 30, rel=0.05)
    assert point["places"] == 48
    assert point["formula.wait"] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("name", STUDIES)
def test_the_same_seed_gives_the_same_study(name: str) -> None:
    engine = planted(*crowd(15), kv_blocks=250)
    rows = np.arange(900)
    t, work = rows * 10_000_000, np.full(900, 8e6)
    noise = Noise(t, 1 + rows % 90 / 200, t, 1 + rows % 50 / 100, work, work)
    engine = replace(engine, noise=noise, waits=Waits(t, rows % 7))
    one, again, other = (made(name, engine, seed=seed, draws=2) for seed in (1, 1, 2))
    assert one.points == again.points
    assert one.points != other.points


@pytest.mark.parametrize("name", STUDIES)
def test_as_text_and_as_json(name: str) -> None:
    study = made(name, planted(*crowd(15), kv_blocks=250))
    text = dumps(study, "text")
    assert max(map(len, text.splitlines())) <= 80
    assert "nan" not in text.split()
    points = json.loads(dumps(study, "json"))["study"]["points"]
    assert len(points) == len(study.points)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "swap.json"
    assert main(["study", "swap", str(LOG), "--draws", "1", "--format", "json", "--out", str(out)]) == 0
    assert json.loads(out.read_text())["study"]["name"] == "swap"
    assert main(["study", "swap", str(LOG), "--out", str(out)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert main(["study", "swap", str(LOG), "--draws", "0"]) == 2
    assert main(["study", "swing", str(LOG)]) == 2


@pytest.mark.slow
def test_its_charts(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    for name in ("floor", "watermark"):
        out = tmp_path / f"{name}.png"
        assert main(["study", name, str(LOG), "--draws", "1", "--format", "png", "--out", str(out)]) == 0
        assert out.read_bytes().startswith(b"\x89PNG")
