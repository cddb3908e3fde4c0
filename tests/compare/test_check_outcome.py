"""Planted runs held against limits; every form of the outcome."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from xml.etree import ElementTree as Xml

import numpy as np
import pytest
from planted import ABILITIES, sample, shifted, side

from stallbook.check import Checked, check, parse_limit, parse_regressions
from stallbook.compare import Sample, compare_samples
from stallbook.errors import StallbookError
from stallbook.report.checked import FORMATS, as_text, document
from stallbook.report.markdown import cell, literal

RUN = sample("run", 1)


def checked(*most: str, runs: list[Sample] | None = None) -> Checked:
    return check(runs or [RUN], [parse_limit(text, "max") for text in most])


def test_what_holds_passes_and_what_does_not_fails() -> None:
    p99 = RUN.totals.gaps.lengths.percentile(99) / 1e6  # type: ignore[operator]
    at = check([RUN], [parse_limit("itl.p99=1s", "max"), parse_limit(f"itl.p99={p99 * 1.01}ms", "min")])
    assert [row.status for row in at.rows] == ["passed", "failed"]
    assert not at.passed
    assert at.rows[0].found == pytest.approx(p99)
    assert "1% under" in at.rows[1].why


def test_what_is_barely_off_is_not_off_by_nothing() -> None:
    p99 = RUN.totals.gaps.lengths.percentile(99) / 1e6  # type: ignore[operator]
    share = RUN.totals.tail.share["fwd"]
    rows = checked(f"itl.p99={p99 * 0.9999}ms", f"tail.fwd={share - 1e-6}").rows
    assert [row.why for row in rows] == ["<1% over", "<0.1 points over"]


def test_several_runs_are_checked_as_one_by_their_merged_distribution() -> None:
    runs = [*side("r", 1, runs=3), sample("odd", 9, tail=6.0)]
    every = np.concatenate([s.totals.gaps.gap for s in runs])
    row = checked("itl.p99=50ms", runs=runs).rows[0]
    assert row.found == pytest.approx(np.percentile(every, 99) / 1e6)
    assert row.runs is not None
    assert row.runs.low < row.found < row.runs.high


def test_a_count_is_one_of_a_run_and_the_worst_decides() -> None:
    runs = [
        replace(s, totals=replace(s.totals, preemptions=n))
        for s, n in zip(side("r", 1, runs=3), (0, 9, 2), strict=True)
    ]
    least = check(runs, [parse_limit("preemptions=1", "min")]).rows[0]
    assert checked("preemptions=5", runs=runs).rows[0].found == 9
    assert (least.found, least.status) == (0, "failed")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("tail.sample=99%", "not recorded by run.stall: cannot pass"),
        ("tail.other:compile=99%", "no such segment or hold in this log: cannot pass"),
        ("eager_steps=5", "not recorded, or nothing to measure: cannot pass"),
    ],
)
def test_what_is_not_recorded_never_passes(text: str, why: str) -> None:
    one = checked(text)
    assert [(row.status, row.why) for row in one.rows] == [("failed", why)]
    assert not one.passed
    assert why in " ".join(as_text(one).split())
    assert document(one)["check"]["rows"][0]["found"] is None


def test_a_cause_of_which_only_a_total_is_known_never_passes() -> None:
    rough = replace(RUN, abilities={**ABILITIES, "os": "bounded", "preempt": "hinted"})
    assert checked("tail.os=99%", runs=[rough]).rows[0].why == "bounded by run.stall: cannot pass"
    assert checked("tail.preempt=99%", runs=[rough]).rows[0].why == "hinted by run.stall: cannot pass"


def test_a_cause_that_took_no_time_but_was_recorded_passes() -> None:
    assert checked("tail.preempt=0%").passed


@pytest.mark.parametrize("text", ["tail.queue=5%", "tail.network=5%", "first.network=5ms", "tail.slow=5%"])
def test_a_cause_that_these_gaps_cannot_hold_is_an_error(text: str) -> None:
    with pytest.raises(StallbookError, match=r"is no part of these gaps|is not charged under these rules"):
        checked(text)


def test_runs_that_are_not_alike_are_not_pooled() -> None:
    odd = replace(sample("odd", 3), settings={"budget": 512})
    with pytest.raises(StallbookError, match="settings: budget 512 here"):
        checked("itl.p99=1s", runs=[RUN, odd])
    assert check([RUN, odd], [parse_limit("itl.p99=1s", "max")], allow=["settings"]).passed


def regressed(change: float, runs: int, noise: float, limit: str = "itl.p99=5%", *, strict: bool = False) -> Checked:
    before = side("b", 500, runs=runs)
    after = [shifted(s, f"a-{i}", change, noise, 600 + i) for i, s in enumerate(before)]
    return check(after, [], compare_samples(after, before), parse_regressions([limit]), strict=strict)


def test_a_regression_that_is_established_fails() -> None:
    row = regressed(1.2, 5, 0.01).rows[0]
    assert (row.status, row.why) == ("failed", "established (p = 0.062)")
    assert row.told.endswith("% worse")
    assert row.found == pytest.approx(0.2, abs=0.03)


def test_an_improvement_passes() -> None:
    row = regressed(0.8, 5, 0.01).rows[0]
    assert (row.status, row.why) == ("passed", "established change")
    assert row.told.endswith("better")


def test_a_change_that_noise_explains_is_unresolved_and_fails_only_if_told_to() -> None:
    noisy = regressed(1.6, 5, 0.6)
    assert [row.status for row in noisy.rows] == ["unresolved"]
    assert noisy.passed
    assert "not resolved from noise" in noisy.rows[0].why
    assert "1 not resolved from noise" in as_text(noisy)
    assert not regressed(1.6, 5, 0.6, strict=True).passed


def test_with_one_run_each_the_figure_alone_decides_and_that_is_said() -> None:
    row = regressed(1.2, 1, 0.0).rows[0]
    assert (row.status, row.why) == ("failed", "1 against 1 run: noise unknown, judged by the figure alone")
    assert regressed(1.02, 1, 0.0).passed


def test_a_slower_rate_is_a_regression() -> None:
    before = side("b", 1)
    after = [replace(s, path=f"a-{s.name}", totals=replace(s.totals, wall_s=s.totals.wall_s * 1.25)) for s in before]
    row = check(after, [], compare_samples(after, before), parse_regressions(["tokens_per_s=10%"])).rows[0]
    assert (row.status, row.told) == ("failed", "20% worse")


def test_a_figure_that_compare_does_not_ask_by_itself_can_be_limited() -> None:
    assert regressed(1.2, 5, 0.01, "itl.p99.5=5%").rows[0].status == "failed"


def mixed() -> Checked:
    """A check with a row of every status, and names that a format must not take for its own."""
    before = [replace(s, path=f"b|<{s.name}>\x01&") for s in side("b", 500, runs=5)]
    after = [shifted(s, f"a|<i>{i}\x07", 1.6, 0.6, 600 + i) for i, s in enumerate(before)]
    limits = [parse_limit("itl.p99=1ms", "max"), parse_limit("tail.sample=5%", "max"), parse_limit("itl.p50=1s", "max")]
    return check(after, limits, compare_samples(after, before), parse_regressions(["itl.p99=5%"]))


def test_text_shows_what_failed_first_in_80_columns() -> None:
    text = as_text(mixed())
    assert text.startswith("FAILED: 2 of 4 checks of 5 runs: itl.p99, tail.sample")
    marks = [line.split()[-1] for line in text.splitlines() if line.startswith(("  itl", "  tail"))]
    assert marks[:4] == ["FAILED", "FAILED", "unresolved", "passed"]
    assert not [line for line in text.splitlines() if len(line) > 80]
    assert "The tail's time: " in text


def test_json_says_the_same() -> None:
    told = json.loads(FORMATS["json"](mixed()))["check"]
    assert told["passed"] is False
    assert told["counts"] == {"failed": 2, "unresolved": 1, "passed": 1}
    assert [row["status"] for row in told["rows"]] == ["failed", "failed", "passed", "unresolved"]


def test_markdown_is_a_table_that_names_cannot_break() -> None:
    text = FORMATS["markdown"](mixed())
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + 4
    assert {line.replace("\\|", "").count("|") for line in rows} == {6}
    assert "<i>" not in text
    assert "**FAILED**" in rows[2]
    assert "&lt;i&gt;" in text


@pytest.mark.parametrize("name", ["[a](http://e)", "![a](http://e)", "*a*", "`a`", "_a_", "~~a~~", "$a$", "a\\*b"])
def test_markdown_reads_no_name_as_its_own(name: str) -> None:
    plain = html.unescape(cell(name))
    assert plain == name
    assert not re.search(r"[*`~$\\]|\]\(|(?<!\w)_|_(?!\w)", cell(name))
    text = FORMATS["markdown"](checked(f"tail.other:{name}=1%", runs=[replace(RUN, engine=name)]))
    assert name not in re.sub("`[^`]*`", "", text)
    assert literal("tail.other:kv") == "`tail.other:kv`"
    assert cell("a__b: 28.7 ms [22.7 to 36.5], [1, 2]") == "a__b: 28.7 ms [22.7 to 36.5], [1, 2]"


CHILDREN = {
    "testsuites": {"testsuite"}, "testsuite": {"properties", "testcase"}, "properties": {"property"}, "property": set(),
    "testcase": {"skipped", "failure"}, "skipped": set(), "failure": set(),
}  # fmt: skip
"""Of the schema that Jenkins, GitLab and the GitHub actions follow (junit-10.xsd), what is used here."""
ATTRIBUTES = {
    "testsuites": ((), ("name", "tests", "failures", "errors")),
    "testsuite": (("name", "tests", "failures", "errors"), ("skipped",)),
    "properties": ((), ()),
    "property": (("name", "value"), ()),
    "testcase": (("name",), ("classname",)),
    "skipped": ((), ("message", "type")),
    "failure": ((), ("message", "type")),
}


def test_junit_follows_the_common_schema() -> None:
    root = Xml.fromstring(FORMATS["junit"](mixed()))
    assert root.tag == "testsuites"
    for element in root.iter():
        required, optional = ATTRIBUTES[element.tag]
        assert set(required) <= set(element.attrib) <= {*required, *optional}
        assert {child.tag for child in element} <= CHILDREN[element.tag]
        assert element.tag in ("skipped", "failure") or not (element.text or "").strip()
    suite = root.find("testsuite")
    assert suite is not None
    cases = suite.findall("testcase")
    assert suite.attrib["tests"] == str(len(cases)) == "4"
    assert suite.attrib["failures"] == str(len(suite.findall("testcase/failure"))) == "2"
    assert suite.attrib["skipped"] == str(len(suite.findall("testcase/skipped"))) == "1"
    assert "wanted at most 1 ms" in cases[0].find("failure").attrib["message"]  # type: ignore[union-attr]
