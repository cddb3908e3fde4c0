"""Numbers in few characters, the same in every output: no part prints as 0, nor one short of all as 100%."""

from __future__ import annotations

__all__ = ["percent", "rate", "short"]


def percent(share: float | None) -> str:
    """A share of something, to a tenth of a percent; its ends are kept for exact 0 and 1."""
    if share is None:
        return "-"
    if share == 0:
        return "0"
    if 0 < share < 0.001:
        return "<0.1%"
    if 0.999 < share < 1:
        return ">99.9%"
    return f"{share:.1%}" if share != 1 else "100%"


def rate(value: float | None) -> str:
    """To three digits; whole from a hundred on."""
    return "-" if value is None else f"{value:,.0f}" if value >= 99.95 else f"{value:.3g}"


def short(value: float | None) -> str:
    """To about three digits in at most five characters, for cells in which several stand together."""
    if value is None:
        return "-"
    if value == 0:
        return "0"
    if value < 0.995:
        return f"{value:.2f}" if value >= 0.005 else "<.01"
    if value >= 9_999.5:
        return f"{value / 1e3:.3g}k" if value < 999_500 else f"{value / 1e6:.3g}M"
    return f"{value:.1f}" if value < 99.95 else f"{value:.0f}"
