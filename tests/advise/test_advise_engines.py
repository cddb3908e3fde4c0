"""The tables of knobs: whole, and spelled as each engine's own help spells them."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import get_type_hints

import pytest

from stallbook.advise.engines import ENGINES, engine_of
from stallbook.advise.fixes import FIXES, RECORD, every_fix, fixes_of, record_of
from stallbook.advise.knobs import Engine
from stallbook.advise.knobs_demo import DEMO
from stallbook.advise.knobs_llama import LLAMA
from stallbook.advise.knobs_sglang import SGLANG
from stallbook.advise.knobs_transformers import TRANSFORMERS
from stallbook.advise.knobs_vllm import VLLM
from stallbook.causes import ORDER
from stallbook.cli.demo import demo

STORED = Path(__file__).parent.parent / "data" / "flags"


def test_every_cause_of_a_gap_has_a_fix_but_what_no_record_explains() -> None:
    assert {c for c in ORDER if not fixes_of(c)} == {"residual", "queue"}
    assert fixes_of("other:anything")


def test_every_fix_says_what_it_costs_and_where_that_shows() -> None:
    for fix in every_fix().values():
        assert fix.costs
        assert all(cost.where and cost.what for cost in fix.costs)


def test_a_slug_means_one_fix() -> None:
    found: dict[str, str] = {}
    for cause, fixes in FIXES.items():
        for fix in fixes:
            if fix.slug != "more-kv":  # of `preempt` and of waits for a cache
                assert found.setdefault(fix.slug, fix.what) == fix.what, cause


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.prefix)
def test_every_knob_is_a_fixs_and_a_flag(engine: Engine) -> None:
    assert {knob.fix for knob in engine.knobs} | set(engine.by_itself) <= set(every_fix())
    assert all(re.fullmatch("--[a-z0-9]+(-[a-z0-9]+)*", knob.flag) for knob in engine.knobs)
    assert all(knob.key for knob in engine.knobs)
    assert not {knob.fix for knob in engine.knobs} & set(engine.by_itself)


def test_the_demonstrators_knobs_are_its_commands_options_with_their_defaults() -> None:
    offered = inspect.signature(demo).parameters
    assert get_type_hints(demo)
    for knob in DEMO.knobs:
        parameter = offered[knob.flag.removeprefix("--").replace("-", "_")]
        default = ",".join(map(str, knob.default)) if isinstance(knob.default, tuple) else knob.default
        assert parameter.default == default, knob.flag


@pytest.mark.parametrize("engine", [VLLM, SGLANG, TRANSFORMERS, LLAMA], ids=lambda engine: engine.prefix)
def test_an_engines_knobs_are_its_flags_with_their_defaults(engine: Engine) -> None:
    """The stored list is held against the installed version by tests/ENGINE/test_ENGINE_flags.py."""
    told = json.loads((STORED / f"{engine.prefix}-{engine.version}.json").read_text(encoding="utf-8"))
    assert told["version"] == engine.version
    for knob in engine.knobs:
        assert knob.flag in told["flags"]
        assert told["flags"][knob.flag] == knob.default, knob.flag


def test_engines_are_known_by_how_their_logs_name_them() -> None:
    named = {
        "stallbook demo": DEMO,
        "vllm 0.32.0+cpu": VLLM,
        "vLLM": VLLM,
        "transformers 5.24.0": TRANSFORMERS,
        "llama.cpp b11434": LLAMA,
        "": None,
        "the post's engine": None,
    }
    assert {name: engine_of(name) for name in named} == named


def test_every_recorded_cause_says_how_to_record_it() -> None:
    assert all(record_of(cause) for cause in (*ORDER, "other:kv"))
    assert set(RECORD) <= set(ORDER)
