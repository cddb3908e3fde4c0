"""Numbers in few characters: what is not zero does not print as zero, nor one short of all as all."""

from __future__ import annotations

import pytest

from stallbook.digits import percent, rate, short


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0, "0"), (1e-9, "<0.1%"), (0.00099, "<0.1%"), (0.001, "0.1%"), (0.5721, "57.2%"), (0.99999, ">99.9%"),
        (1, "100%"), (1.029, "102.9%"), (-0.027, "-2.7%"), (None, "-"),
    ],
)  # fmt: skip
def test_percent(share: float | None, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0, "0"), (0.1234, "0.123"), (7.16, "7.16"), (99.94, "99.9"), (99.97, "100"), (13583.4, "13,583")],
)
def test_rate(value: float | None, text: str) -> None:
    assert rate(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"), (0.0, "0"), (0.001, "<.01"), (0.25, "0.25"), (3.64, "3.6"), (99.94, "99.9"), (99.96, "100"),
        (9466.2, "9466"), (9999.6, "10k"), (13583, "13.6k"), (999_600, "1M"), (12_345_678, "12.3M"),
    ],
)  # fmt: skip
def test_short(value: float | None, text: str) -> None:
    assert short(value) == text
    assert len(text) <= 5
