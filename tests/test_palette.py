"""The colours can be told apart: from the ground, and from each other by colour-blind readers."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

from stallbook.causes import CLEAN, ORDER
from stallbook.palette import GROUND, LEADING, SLOTS, Colour, colour, slot

# Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB.
SIGHT = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
# Björn Ottosson's OKLab.
LMS = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)
APART = 0.09
"""In OKLab, where 0.02 is just noticeable side by side."""


def linear(hexed: str) -> np.ndarray:
    c = np.array([int(hexed[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    low, high = sorted(float(linear(c) @ (0.2126, 0.7152, 0.0722)) for c in (one, other))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("ground", ["light", "dark"])
def test_every_colour_stands_out_from_its_ground(ground: str) -> None:
    for name, one in SLOTS.items():
        assert contrast(getattr(one, ground), getattr(GROUND, ground)) >= 3, name


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("ground", ["light", "dark"])
def test_the_leading_causes_are_told_apart_by_every_reader(ground: str, sight: str) -> None:
    seen = {
        c: np.cbrt(np.clip(SIGHT[sight] @ linear(getattr(SLOTS[c], ground)), 0, 1) @ LMS.T) @ LAB.T for c in LEADING
    }
    for one, other in itertools.combinations(LEADING, 2):
        assert np.linalg.norm(seen[one] - seen[other]) >= APART * (1 if sight != "tritanopia" else 0.9), (one, other)


@pytest.mark.parametrize("ground", ["light", "dark"])
def test_named_segments_look_like_no_other_cause(ground: str) -> None:
    seen = {c: np.cbrt(linear(getattr(SLOTS[c], ground)) @ LMS.T) @ LAB.T for c in SLOTS}
    others = [c for c in SLOTS if c.startswith("other-")]
    for one, other in itertools.product(others, SLOTS):
        assert one == other or np.linalg.norm(seen[one] - seen[other]) >= 0.08, (one, other)


def test_what_comes_in_one_log_of_vllm_shares_no_colour() -> None:
    page = (Path(__file__).parent.parent / "docs" / "vllm.md").read_text(encoding="utf-8")
    table = page[page.index("| cause | is |") : page.index("So all of the engine's thread is named")]
    named = re.findall(r"`(other:\w+)`", table)
    assert len({slot(cause) for cause in named}) == len(named) > 5


def test_every_cause_has_a_colour() -> None:
    assert {*ORDER, CLEAN} <= set(SLOTS)
    assert colour("other:kv") is SLOTS[slot("other:kv")]
    assert isinstance(colour("other:\udcff <"), Colour)
    assert slot("other:kv") == slot("other:kv")
