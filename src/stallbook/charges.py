"""What a piece of a segment is charged to (docs/how-it-works.md), as cumulative integer functions of time.

Per segment `os` comes first; the rest of a step's decode segments, M, is split by the step's graph path and
its baseline. A stretch that holds part of a segment's net gets each label in proportion, as differences of
floors along the step, so that the labels of a whole segment add up to it exactly and none is negative.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from stallbook import baseline as base
from stallbook.baseline import BaselineFit
from stallbook.causes import OTHER
from stallbook.intervals import before, mul_div, sums
from stallbook.run import CAPTURED, EAGER, NO_GRAPH, ExplicitBaseline, Ints, Run
from stallbook.timeline import DECODE, POST_SEGMENTS, Timeline

__all__ = ["SPLIT", "Charges", "charge", "kv_tokens", "segment_cause", "segment_names"]

Bools = npt.NDArray[np.bool_]

SPLIT = ("graph", "slow", "pad", "prefill")
"""What is taken from M, in this order; `fwd` keeps the rest."""

_OWN = ("sched", "sample", "output")
_ENOUGH, _ENOUGH_SHARE = 20, 0.05
"""Fewer steps without run-queue delay than both: hardly any ran undisturbed, and a robust fit takes all."""


@dataclass(frozen=True)
class Charges:
    """os: ns a segment. m: ns a step. split: ns a step, one row for each of `SPLIT`. decode: which segments are."""

    os: Ints
    m: Ints
    split: Ints
    decode: Ints
    baseline: BaselineFit
    capped: int
    """Steps whose run-queue delay exceeded their window."""
    from_totals: bool
    """Whether `os` came, anywhere, from a step's total."""

    @property
    def based(self) -> bool:
        """Whether there is a baseline, and any decode step has one."""
        decoded = int((self.m > 0).sum())
        return self.baseline.method != "none" and (not decoded or self.baseline.steps_without < decoded)


def segment_cause(name: str) -> str:
    """The cause of a segment's net under `full`; `decode` stands for the split of 3.1."""
    return POST_SEGMENTS.get(name) or (name if name in _OWN else OTHER + name)


def segment_names(run: Run) -> set[str]:
    """The names that occur, each looked at once however many segments there are."""
    return {run.names[i] for i in np.flatnonzero(np.bincount(run.segments.name))}


def charge(run: Run, timeline: Timeline, rules: str, explicit: ExplicitBaseline | None) -> Charges:
    """Decide every segment's and every step's amounts."""
    s, n_steps = run.segments, len(run.steps.id)
    os, capped, totals = _os(run, timeline) if rules == "full" else (np.zeros_like(s.t0), 0, False)
    decode = _named(run, DECODE) & (timeline.net > 0)
    m = sums(s.step[decode], (timeline.net - os)[decode], n_steps)
    if explicit is not None:
        fit, kv = base.given(explicit), run.steps.kv_tokens
    else:
        kv = kv_tokens(run) if rules == "full" else run.steps.kv_tokens
        fit = _fit(run, timeline, rules, m, os, kv)
    b_n, b_p = _baselines(run, kv, fit)
    without = int(((m > 0) & (b_p <= 0)).sum())
    split = _split_post(run, m, b_n, b_p) if rules == "post" else _split_full(run, m, b_n, b_p)
    return Charges(os, m, split, decode.astype(np.int64), replace(fit, steps_without=without), capped, totals)


def _named(run: Run, name: str) -> Bools:
    code = run.names.index(name) if name in run.names else -1
    return np.asarray(run.segments.name == code)


def _os(run: Run, timeline: Timeline) -> tuple[Ints, int, bool]:
    """Run-queue delay of each host segment: its own, or its share of its step's total by net."""
    s, st = run.segments, run.steps
    host = s.device == 0
    own = np.where(host & (s.run_delay > 0), np.minimum(s.run_delay, timeline.net), 0)
    told = np.bincount(s.step[host & (s.run_delay >= 0)], minlength=len(st.id)) > 0
    window = st.t1 - st.t0
    total = np.where(~told & (window > 0), np.clip(st.run_delay, 0, None), 0)
    capped = int((total > window).sum())
    total = np.minimum(total, window)
    share = host & (total[s.step] > 0)
    if share.any():
        step = s.step[share]
        own[share] = mul_div(total[step], timeline.net[share], window[step])
    return own, capped, bool(share.any())


def kv_tokens(run: Run) -> Ints:
    """KV tokens attended by each step's decode rows: recorded, or rebuilt from prompt and output lengths."""
    kv, e = run.steps.kv_tokens, run.emissions
    if (kv >= 0).any() or not len(e.request) or (run.requests.prompt_tokens[e.request] < 0).any():
        return kv
    earlier = before(e.request, e.tokens)
    many = np.bincount(e.step, minlength=len(kv)) > np.maximum(run.steps.decode_tokens, 0)
    prefilled = (earlier == 0) & many[e.step] & (run.steps.decode_tokens[e.step] >= 0)  # its last chunk gave the token
    attended = np.where(prefilled, 0, run.requests.prompt_tokens[e.request] + earlier + 1)
    return np.bincount(e.step, weights=attended, minlength=len(kv)).astype(np.int64)


def _padded(run: Run) -> Ints:
    """P: the padded size where one is given; a step without a captured path ran at its own."""
    given = (run.steps.padded >= 0) & (run.steps.graph != NO_GRAPH)
    return np.where(given, run.steps.padded, run.steps.decode_tokens)


def _mixed(run: Run) -> Bools:
    """Steps with prompt tokens in the decode's own forward pass: they have no `prefill` segment of any length.

    Where the log does not say how many rows decoded, there is nothing to split by.
    """
    own = np.bincount(run.segments.step[_named(run, "prefill")], minlength=len(run.steps.id))
    return np.asarray((run.steps.prefill_tokens > 0) & (run.steps.decode_tokens >= 0) & (own == 0))


def _fit(run: Run, timeline: Timeline, rules: str, m: Ints, os: Ints, kv: Ints) -> BaselineFit:
    s, n = run.segments, len(run.steps.id)
    captured = (run.steps.graph == CAPTURED) & (run.steps.decode_tokens >= 0)
    rows = _padded(run)
    if rules == "post":
        return base.fit_least_squares(rows[captured], m[captured])
    decode = _named(run, DECODE)
    disturbed = np.bincount(s.step[decode & (timeline.paused > 0)], minlength=n) > 0
    delayed = np.bincount(s.step[decode & (os > 0)], minlength=n) > 0
    usable = captured & ~disturbed & ~_mixed(run) & (m > 0)
    clean = int((usable & ~delayed).sum())
    if clean >= _ENOUGH or clean > _ENOUGH_SHARE * int(usable.sum()):
        usable &= ~delayed
    if 2 * int((usable & (kv >= 0)).sum()) > int(usable.sum()):
        usable &= kv >= 0
    return base.fit_robust(rows[usable], kv[usable], m[usable])


def _baselines(run: Run, kv: Ints, fit: BaselineFit) -> tuple[Ints, Ints]:
    """B(n) and B(P) a step, -1 where the step has no baseline."""
    known = run.steps.decode_tokens >= 0
    padded = fit.at(_padded(run), kv)
    rows = fit.at(np.maximum(run.steps.decode_tokens, 0), kv)
    usable = known & (padded > 0)
    return np.where(usable, np.minimum(rows, padded), -1), np.where(usable, padded, -1)


def _split_post(run: Run, m: Ints, b_n: Ints, b_p: Ints) -> Ints:
    split = np.zeros((len(SPLIT), len(m)), np.int64)
    eager = (run.steps.graph == EAGER) & (b_p > 0)
    split[0] = np.where(eager, m - np.minimum(b_n, m), 0)
    return split


def _split_full(run: Run, m: Ints, b_n: Ints, b_p: Ints) -> Ints:
    st = run.steps
    has = b_p > 0
    mixed = _mixed(run)
    eager = (st.graph == EAGER) & ~mixed & has
    plain = (st.graph != EAGER) & ~mixed & has
    slow = plain & (m >= 2 * b_p)
    quick = plain & ~slow
    over = b_p - b_n
    split = np.zeros((len(SPLIT), len(m)), np.int64)
    split[0] = np.where(eager, m - np.minimum(b_n, m), 0)
    split[1] = np.where(slow, m - b_p, 0)
    split[2] = np.where(slow, over, 0)
    short = mul_div(np.where(quick, over, 0), np.where(quick, np.minimum(m, b_p), 0), np.maximum(b_p, 1))
    split[2] = np.where(quick, short, split[2])
    split[3] = np.where(mixed, _mixed_prefill(st.decode_tokens, st.prefill_tokens, m, b_n, has), 0)
    return split


def _mixed_prefill(decode: Ints, prefill: Ints, m: Ints, b_n: Ints, has: Bools) -> Ints:
    """The prompt's share of a mixed step: above B(n), or by token share where there is no baseline."""
    rows = np.maximum(decode, 0)
    prompt = np.maximum(prefill, 0)
    by_share = mul_div(m, prompt, np.maximum(prompt + rows, 1))
    return np.where(rows == 0, m, np.where(has, m - np.minimum(b_n, m), by_share))
