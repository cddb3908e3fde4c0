"""The pages say what the code does; the ladder and `compare` give one verdict."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import pytest
from pipeline_logs import serve
from planted import CAUSES, sample

from stallbook.compare import KEYS, Sample, compare_samples
from stallbook.compare.figures import CAUSE_GROUPS, FIGURES
from stallbook.compare.verdict import weaker
from stallbook.study.outcomes import normalised, outcomes
from stallbook.study.rungs import RUNGS
from stallbook.study.steps import steps_table

DOCS = Path(__file__).parents[2] / "docs"
COMPARE, CHECK, LADDER = ((DOCS / f"{name}.md").read_text(encoding="utf-8") for name in ("compare", "check", "ladder"))


def line(s: Sample, rung: str, seed: int) -> dict[str, Any]:
    """The line that a study keeps of a run, as far as its verdicts read it."""
    read = {name: figure.read(s.totals) for name, figure in FIGURES.items()}
    body = {
        "itl_ms": {"p50": read["itl.p50"], "p99": read["itl.p99"], "p999": read["itl.p99.9"], "max": read["itl.max"]},
        "ttft_ms": {"p50": read["ttft.p50"], "p99": read["ttft.p99"]},
        "tokens_per_s": read["tokens_per_s"],
        "tail": {"share": s.totals.tail.share},
        "counters": {},
    }
    assert s.speed is not None
    return {"rung": rung, "seed": seed, "post": body, "full": body, "probe": {"median_ns": s.speed.median_ns}}


@pytest.mark.parametrize("tail", [1.0, 0.93, 0.7])
@pytest.mark.parametrize("noise", [0.02, 0.1, 0.3])
def test_compare_gives_the_verdicts_of_the_ladder(tail: float, noise: float) -> None:
    """Five seeds of two rungs, on a machine that drifts: the table of a study, and `compare` on the same runs."""
    before, after = RUNGS[3], RUNGS[4]
    assert after.cause in CAUSES
    rungs = {}
    for k, (rung, how) in enumerate(((before, 1.0), (after, tail))):
        rungs[rung.slug] = [
            sample(f"{rung.slug}-{i}", 10 * k + i, seed=i, noise=noise, tail=how, speed=1 + 0.03 * ((7 * i + k) % 5))
            for i in range(5)
        ]
    lines = [line(s, slug, i) for slug, side in rungs.items() for i, s in enumerate(side)]
    runs = outcomes(lines, "post")
    table = steps_table([before, after], runs, [normalised(run) for run in runs])
    told = {cells[0].main: cells[-1].main for _, cells in table.rows}
    c = compare_samples(rungs[after.slug], rungs[before.slug], allow=["drift"])
    names = {"p50": "itl.p50", "p99": "itl.p99", "p99.9": "itl.p99.9", "max": "itl.max", "TTFT p50": "ttft.p50"}
    assert told == {label: c.answers[name].word for label, name in names.items()} | {
        f"{after.cause} share": c.answers[f"tail.{after.cause}"].word
    }


def test_the_example_agrees_with_the_ladders_own_page() -> None:
    """Real runs: the example of compare.md and the last table of the ladder's study."""
    ends = LADDER[LADDER.index("**First against last rung, in ms") : LADDER.index("<!-- overload tables -->")]
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in ends.splitlines() if row.startswith("| ")]
    words = {row[0]: row[-1] for row in rows[2:]}
    assert set(words) == {f"{name}{how}" for name in ("p99", "p99.9", "max") for how in ("", " norm.")}
    for name, label in {"p99": "p99", "p99.9": "p99.9", "max": "worst"}.items():
        (shown,) = re.findall(
            rf"^  {re.escape(label)} .*?(established|suggestive|not resolved)$", COMPARE, re.MULTILINE
        )
        assert shown == weaker(words[name], words[f"{name} norm."])  # type: ignore[arg-type]


def test_the_pages_name_every_key_and_every_figure() -> None:
    table = COMPARE[COMPARE.index("| key for `--allow`") : COMPARE.index("    stallbook: ladder/")]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == set(KEYS)
    named = set(re.findall(r"`([\w.]+)`", CHECK)) | {"itl.p90"}
    assert set(FIGURES) <= named
    assert {f"{group}.CAUSE" for group in CAUSE_GROUPS} <= named


def pipeline() -> str:
    """The shell lines of the step of check.md that checks."""
    (block,) = re.findall(r"- name: Check the tail\n        run: \|\n((?: {10}.*\n)+)", CHECK)
    return re.sub(r"^ {10}", "", block, flags=re.MULTILINE)


def piped(folder: Path) -> tuple[int, str, str]:
    """Run it as a runner does, in a folder with runs/ and baseline/: exit code, what it said, the summary."""
    bin_, summary = folder / "bin", folder / "summary.md"
    bin_.mkdir()
    (bin_ / "stallbook").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m stallbook "$@"\n')
    (bin_ / "stallbook").chmod(0o755)
    summary.write_text("before\n")
    done = subprocess.run(
        ["bash", "-e", "-c", pipeline()],
        cwd=folder,
        env={**os.environ, "PATH": f"{bin_}:{os.environ['PATH']}", "GITHUB_STEP_SUMMARY": str(summary)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr, summary.read_text()


@pytest.mark.slow
def test_the_sample_pipeline_passes_on_runs_that_are_as_before(tmp_path: Path) -> None:
    serve(tmp_path / "baseline", slow_ms=20)
    serve(tmp_path / "runs", slow_ms=20)
    code, told, summary = piped(tmp_path)
    assert (code, told.splitlines()[0]) == (0, "Passed: 6 checks of 5 runs.")
    assert summary.startswith("before\n### stallbook: Passed: 6 checks of 5 runs.")
    root = Xml.parse(tmp_path / "check.xml").getroot()
    assert (root.attrib["tests"], root.attrib["failures"]) == ("6", "0")


def test_the_sample_pipeline_fails_on_runs_that_got_worse(tmp_path: Path) -> None:
    serve(tmp_path / "baseline", slow_ms=20)
    serve(tmp_path / "runs", slow_ms=60)
    code, told, summary = piped(tmp_path)
    assert code == 1
    assert told.startswith(
        "FAILED: 3 of 6 checks of 5 runs: itl.p99, itl.p99 (worse than before),\ntokens_per_s (worse"
    )
    assert re.search(r"\| `itl.p99` \| at most 50 ms \| 70\S* ms \| \*\*FAILED\*\* \| 40% over \|", summary)
    assert re.search(r"\| `itl.p99` \| at most 10% worse \| 13\d% worse \| \*\*FAILED\*\* \| established", summary)
    assert "The tail's time: prefill" in summary
    assert Xml.parse(tmp_path / "check.xml").getroot().attrib["failures"] == "3"


@pytest.mark.slow
def test_the_sample_pipeline_fails_where_a_cause_was_not_recorded(tmp_path: Path) -> None:
    for name in ("baseline", "runs"):
        serve(tmp_path / name, slow_ms=20, records=["segments", "gc", "graph"])
    code, told, _ = piped(tmp_path)
    assert code == 1
    assert "not recorded by s1.stall: cannot pass" in " ".join(told.split())
