"""Bad settings are refused with one line that says what to do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stallbook.demo import Settings
from stallbook.demo.machine import check_blas, check_cpus
from stallbook.errors import StallbookError


def test_defaults_are_the_post_s_baseline() -> None:
    settings = Settings()
    assert (settings.max_num_seqs, settings.token_budget, settings.kv_blocks) == (48, 2048, 1000)
    assert settings.capture_sizes == (1, 2, 4, 8, 16, 24, 32)
    assert settings.rate is None


def test_json_there_and_back() -> None:
    settings = Settings(seconds=3, rate=2.5, capture_sizes=(1, 2), tokenize="process", tokenizer_cpus=(0,))
    assert Settings.from_json(json.dumps(settings.as_dict())) == settings


@pytest.mark.parametrize(
    "given",
    [
        {"rate": -1}, {"rate": 0}, {"rate": 1e9}, {"rate": float("nan")}, {"rate": True}, {"rate": "fast"},
        {"seconds": 0}, {"seconds": -3}, {"seconds": float("inf")}, {"seconds": None},
        {"seed": 1.5}, {"seed": "x"},
        {"max_num_seqs": 0}, {"max_num_seqs": 10_000},
        {"token_budget": 47}, {"token_budget": 0},
        {"capture_sizes": [2, 1]}, {"capture_sizes": [1, 1]}, {"capture_sizes": [0, 1]}, {"capture_sizes": "1,2"},
        {"kv_blocks": 10}, {"kv_blocks": -1},
        {"admit_by": "luck"}, {"decode_weight": -1}, {"decode_weight": float("nan")}, {"context_weight": 2},
        {"preemption": "pray"}, {"preemption": 1},
        {"admit_watermark": 1.0}, {"admit_watermark": -0.1},
        {"tokenize": "thread"}, {"tokenizer_cpus": [0]}, {"tokenize": "process", "tokenizer_cpus": []},
        {"tokenize": "process", "tokenizer_cpus": [-1]}, {"tokenizer_nice": 5},
        {"tokenize": "process", "tokenizer_nice": 20}, {"tokenize": "process", "tokenizer_nice": -1},
        {"blas_threads": 0}, {"gc_freeze": 1}, {"record": "yes"}, {"unheard_of": 1},
    ],
)  # fmt: skip
def test_a_bad_setting_is_refused_by_name(given: dict[str, Any]) -> None:
    with pytest.raises(StallbookError) as caught:
        Settings.from_mapping(given)
    assert str(list(given)[-1]) in str(caught.value) or "capture" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.remedy


@pytest.mark.parametrize("text", ["", "{", "[1]", "3", "null"])
def test_settings_that_are_no_object_are_refused(text: str) -> None:
    with pytest.raises(StallbookError):
        Settings.from_json(text)


def test_empty_capture_sizes_mean_no_captured_path() -> None:
    assert Settings(capture_sizes=()).capture_sizes == ()


def test_another_number_of_blas_threads_is_refused() -> None:
    with pytest.raises(StallbookError, match="before NumPy is imported"):
        check_blas(255)


def test_a_cpu_that_is_not_there_is_refused() -> None:
    check_cpus(None)
    with pytest.raises(StallbookError, match="tokenizer_cpus"):
        check_cpus((100_000,))
