"""The queue before a pool of places: M/G/c by Erlang's formula and the correction of Allen and Cunneen."""

from __future__ import annotations

__all__ = ["erlang_c", "mean_wait"]


def erlang_c(offered: float, places: int) -> float:
    """The probability that an arrival waits; offered: arrivals a second times the seconds that each holds a place."""
    if offered >= places:
        return 1.0
    inverse = 1.0  # of Erlang's B, place by place: it neither overflows nor cancels
    for n in range(1, places + 1):
        inverse = 1.0 + inverse * n / offered if offered else float("inf")
    blocked = 1.0 / inverse
    return blocked / (1.0 - offered / places * (1.0 - blocked))


def mean_wait(rate: float, service: float, places: int, variation: float = 1.0) -> float:
    """The mean wait, in the unit of `service`; infinite where the places cannot keep up.

    variation: the squared coefficient of variation of the service times; 1 is the exponential's.
    """
    offered = rate * service
    if places < 1 or offered >= places:
        return float("inf")
    return erlang_c(offered, places) * service / (places - offered) * (1 + variation) / 2
