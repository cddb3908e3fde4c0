"""What can be demanded, and how it is written."""

from __future__ import annotations

import pytest

from stallbook.check import parse_limit, parse_regressions
from stallbook.check.limits import shown, shown_change
from stallbook.compare.figures import FIGURES, figure
from stallbook.errors import StallbookError


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("itl.p99=50ms", "itl.p99", 50.0),
        ("itl.p99=0.05s", "itl.p99", 50.0),
        ("itl.p99 = 50000 us", "itl.p99", 50.0),
        ("itl.p99.9=1s", "itl.p99.9", 1000.0),
        ("itl.p95=3ms", "itl.p95", 3.0),
        ("ttft.p50=200ms", "ttft.p50", 200.0),
        ("tail.preempt=10%", "tail.preempt", 0.1),
        ("tail.preempt=0.1", "tail.preempt", 0.1),
        ("tail.other:kv_load=0%", "tail.other:kv_load", 0.0),
        ("gap.gc=20us", "gap.gc", 0.02),
        ("first.queue=1s", "first.queue", 1000.0),
        ("tokens_per_s=1500", "tokens_per_s", 1500.0),
        ("tokens_per_s=1500/s", "tokens_per_s", 1500.0),
        ("preemptions=0", "preemptions", 0.0),
        ("stalls.share=1%", "stalls.share", 0.01),
    ],
)
def test_limits(text: str, name: str, value: float) -> None:
    limit = parse_limit(text, "max")
    assert (limit.figure.name, limit.value) == (name, pytest.approx(value))
    assert limit.holds(value)
    assert not limit.holds(value * 1.01 + 1e-9)
    assert parse_limit(text, "min").holds(value * 1.01)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("itl.p99", "write --max itl.p99=50ms"),
        ("itl.p99=", "has no value"),
        ("itl.p99=50", "write it as in itl.p99=50ms"),
        ("itl.p99=-5ms", "write it as in itl.p99=50ms"),
        ("itl.p99=nanms", "write it as in itl.p99=50ms"),
        ("itl.p99=10%", "write it as in itl.p99=50ms"),
        ("tail.preempt=10", "write it as in tail.preempt=10%"),
        ("tail.preempt=110%", "write it as in tail.preempt=10%"),
        ("tokens_per_s=5ms", "write it as in tokens_per_s=1500"),
        ("itl.p=5ms", "'itl.p' is no figure"),
        ("itl.p0=5ms", "is no figure"),
        ("tail.preemt=5%", "did you mean tail.preempt"),
        ("tail.=5%", "is no figure"),
        ("tail.other:=5%", "is no figure"),
        ("nonsense=5%", "use one of itl.p50,"),
        ("=5%", "is no figure"),
    ],
)
def test_what_is_no_limit_is_refused_with_what_to_write(text: str, told: str) -> None:
    with pytest.raises(StallbookError) as refused:
        parse_limit(text, "max")
    assert told in str(refused.value)


def test_percentiles_by_either_spelling() -> None:
    for one, other in (("itl.p999", "itl.p99.9"), ("ttft.p9999", "ttft.p99.99"), ("itl.p5", "itl.p5.0")):
        assert figure(one).kind == figure(other).kind == "time"


def test_regressions() -> None:
    every = {r.figure.name: r for r in parse_regressions(["5%"])}
    assert set(every) == {"itl.p50", "itl.p99", "ttft.p99", "tokens_per_s"}
    assert all(r.value == pytest.approx(0.05) for r in every.values())
    mixed = {r.figure.name: r.value for r in parse_regressions(["itl.p99=20%", "5%", "tail.gc=2pt", "gap.gc=10us"])}
    assert mixed["itl.p99"] == pytest.approx(0.2)
    assert mixed["itl.p50"] == pytest.approx(0.05)
    assert (mixed["tail.gc"], mixed["gap.gc"]) == (pytest.approx(0.02), pytest.approx(0.01))


@pytest.mark.parametrize("text", ["5", "5ms", "-5%", "itl.p99=5pt", "tail.gc=5%", "gap.gc=5%", "preemptions=5", "x=5%"])
def test_what_is_no_regression_limit_is_refused(text: str) -> None:
    with pytest.raises(StallbookError):
        parse_regressions([text])


def test_values_read_well_and_honestly() -> None:
    itl, tail, rate = FIGURES["itl.p99"], figure("tail.gc"), FIGURES["tokens_per_s"]
    assert [shown(itl, v) for v in (0.02, 12.345, 1234.5, 65_432)] == ["20 us", "12.3 ms", "1,234 ms", "65.4 s"]
    assert [shown(tail, v) for v in (0, 1e-6, 0.1, 0.9999, 1)] == ["0%", "<0.1%", "10%", ">99.9%", "100%"]
    assert shown(rate, 1980.4) == "1,980"
    p99, share, cause = parse_regressions(["itl.p99=5%", "tail.gc=2pt", "gap.gc=10us"])
    assert (shown_change(p99, 0.117), shown_change(p99, -0.05)) == ("11.7% worse", "5% better")
    assert (shown_change(share, 0.02), shown_change(cause, 0.01)) == ("2 pt worse", "10 us worse")
