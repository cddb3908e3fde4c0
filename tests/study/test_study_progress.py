from __future__ import annotations

import pytest

from stallbook.study.progress import Estimate, duration


def test_the_time_left_follows_the_cells_that_were_timed() -> None:
    estimate = Estimate(seconds=60.0, total=35)
    assert estimate.left() == 35 * 70
    estimate.finish(80.0)
    assert estimate.left() == 34 * 80
    assert estimate.left(in_cell=30.0) == 34 * 80 - 30
    assert estimate.left(in_cell=300.0) == 33 * 80
    estimate.done = 35
    assert estimate.left() == 0.0


@pytest.mark.parametrize(("seconds", "shown"), [(12.3, "12 s"), (300, "5 min"), (5399, "89 min"), (7260, "2 h 01 min")])
def test_durations(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown
