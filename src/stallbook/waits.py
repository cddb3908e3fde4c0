"""The first token's wait and the gaps beyond the engine, partitioned by the same rules as gaps.

TTFT runs from arrival to the first emission. A gap at the frontend or the client is cut at the engine's emission of
the first token that the later delivery brought, and at that token's stamp at the frontend.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stallbook.causes import ordered
from stallbook.intervals import before, expand, subtract, union
from stallbook.ledger import Ledger
from stallbook.partition import Partition, primaries
from stallbook.run import UNKNOWN, Ints, Run
from stallbook.spans import Spans, charge_spans

__all__ = ["BLOCKERS", "BOUNDARIES", "Waits", "blocked_by", "boundary_gaps", "first_tokens", "held_by", "holders"]

BOUNDARIES = ("frontend", "client")
BLOCKERS = ("nothing on record", "KV blocks", "the limit of sequences", "the token budget")
"""What kept requests from being admitted, by the codes of `Steps.blocked`; the first also where none is known."""


@dataclass(frozen=True)
class Waits:
    """A row a wait [t0, t1) of a request, in ns. parts, context: ns, shape (waits, causes); parts add up to the wait.

    primary: column of the primary cause, -1 for clean. never_admitted: waits whose request has no admission on
    record, so that none of them is `queue`. tokens: those of the delivery that ends the wait. unmatched: deliveries
    whose token the engine never emitted.
    """

    causes: tuple[str, ...]
    request: Ints
    t0: Ints
    t1: Ints
    parts: Ints
    context: Ints
    primary: Ints
    tokens: Ints
    never_admitted: int = 0
    unmatched: int = 0


def first_tokens(p: Partition) -> Waits:
    """Partition the TTFT of every request of `p.run` whose arrival and first emission are on record."""
    run, rhythm, ledger, windows = p.run, p.rhythm, p.ledger, p.windows
    e = run.emissions
    first = np.flatnonzero(np.diff(e.request, prepend=-1))
    first = first[run.requests.arrive[e.request[first]] != UNKNOWN]
    request, to = e.request[first], rhythm.ordinal[e.step[first]]
    t1 = rhythm.emit[to]
    t0 = np.minimum(run.requests.arrive[request], t1)
    told = run.requests.admit[request] != UNKNOWN
    admit = np.clip(np.where(told, run.requests.admit[request], t0), t0, t1)
    spans = Spans(request, admit, t1, np.searchsorted(rhythm.emit, admit, "right"), to)
    charged = charge_spans(run, rhythm, ledger, windows, spans, p.rules)
    causes = ordered([*ledger.causes, "queue", "os"])
    parts, context = np.zeros((len(causes), len(first)), np.int64), np.zeros((len(causes), len(first)), np.int64)
    at = [causes.index(c) for c in ledger.causes]
    parts[at], context[at] = charged.parts, charged.context
    wait, a, b = _own_tok(run, request, t0, t1)
    early = np.minimum(b, admit[wait]) - np.minimum(a, admit[wait])
    early_tok = np.bincount(wait, weights=early, minlength=len(first)).astype(np.int64)
    delayed = _delayed(run, ledger, request, wait, np.maximum(a, admit[wait]), b, charged.cut, t0, t1)
    parts[causes.index("tok")] += early_tok + delayed
    parts[causes.index("os")] -= delayed
    parts[causes.index("queue")] += admit - t0 - early_tok
    return _kept(causes, request, t0, t1, parts, context, e.tokens[first], int((~told).sum()), 0)


def blocked_by(run: Run) -> Ints | None:
    """What blocked admission while requests queued: ns over all waits, one for each of `BLOCKERS`. Context: it
    explains `queue`, own tokenizing included. None where the log does not say what blocked.

    What a step says of the first waiting request holds until the next step.
    """
    st = run.steps
    if not (st.blocked >= 0).any():
        return None
    _, t0, t1 = _queued(run)
    out = np.zeros(len(BLOCKERS), np.int64)
    for code in range(1, len(BLOCKERS)):
        mine = st.blocked == code
        upto = np.concatenate([[0], np.cumsum(np.diff(st.t0) * mine[:-1])])
        for ends, sign in ((t1, 1), (t0, -1)):
            k = np.searchsorted(st.t0, ends, "right") - 1
            inside = np.where(mine[np.maximum(k, 0)], ends - st.t0[np.maximum(k, 0)], 0)
            out[code] += sign * int(np.where(k >= 0, upto[np.maximum(k, 0)] + inside, 0).sum())
    out[0] = int((t1 - t0).sum()) - int(out.sum())
    return out


def held_by(run: Run) -> tuple[int, dict[str, int]]:
    """How long requests queued in all, in ns; and for how much of it each kind of hold kept them. Context, as above:
    a frontend's tokenizing is such a hold.
    """
    request, t0, t1 = _queued(run)
    h = run.holds
    at = np.full(len(run.requests.names), -1)
    at[request] = np.arange(len(request))
    wait = at[h.request]
    inside = np.minimum(h.t1, t1[wait]) - np.maximum(h.t0, t0[wait]) if len(t0) else np.zeros(len(wait), np.int64)
    inside = np.where(wait >= 0, np.maximum(inside, 0), 0)
    held = {run.names[kind]: int(inside[h.kind == kind].sum()) for kind in np.unique(h.kind)}
    return int((t1 - t0).sum()), {kind: ns for kind, ns in held.items() if ns}


def _queued(run: Run) -> tuple[Ints, Ints, Ints]:
    """Whose wait from arrival to admission is on record, and that wait: request, start, end."""
    e = run.emissions
    first = np.flatnonzero(np.diff(e.request, prepend=-1))
    request = e.request[first]
    arrive, admit, emitted = run.requests.arrive[request], run.requests.admit[request], run.steps.emit[e.step[first]]
    known = (arrive != UNKNOWN) & (admit != UNKNOWN)
    t0 = np.minimum(arrive, emitted)[known]
    return request[known], t0, np.clip(admit, np.minimum(arrive, emitted), emitted)[known]


def boundary_gaps(p: Partition, boundary: str) -> Waits:
    """Partition the gaps between two deliveries of a request at "frontend" or "client"."""
    run, rhythm, ledger, windows = p.run, p.rhythm, p.ledger, p.windows
    d, e = run.deliveries, run.emissions
    rows = np.flatnonzero((d.boundary == BOUNDARIES.index(boundary)) & (d.tokens > 0))
    later = rows[1:][d.request[rows[1:]] == d.request[rows[:-1]]]
    earlier = rows[:-1][d.request[rows[1:]] == d.request[rows[:-1]]]
    request, t0, t1 = d.request[later], d.t[earlier], d.t[later]
    token = before(d.request[rows], d.tokens[rows])[np.searchsorted(rows, later)]
    emission = _holder(e.request, e.tokens, request, token)
    found = emission >= 0
    unmatched = int((~found).sum())
    request, t0, t1, token, emission = request[found], t0[found], t1[found], token[found], emission[found]
    to = rhythm.ordinal[e.step[emission]]
    emitted = np.clip(rhythm.emit[to], t0, t1)
    follows = (emission > 0) & (e.request[np.maximum(emission - 1, 0)] == request)
    frm = np.where(follows, rhythm.ordinal[e.step[np.maximum(emission - 1, 0)]], -1)
    after = np.searchsorted(rhythm.emit, t0, "right")
    spans = Spans(request, t0, emitted, np.maximum(frm + 1, after), to)
    charged = charge_spans(run, rhythm, ledger, windows, spans, p.rules)
    handed = _frontend_stamps(run, request, token, t1)
    handed = np.clip(handed, emitted, t1)
    causes = ordered([*ledger.causes, "frontend", "network"])
    parts, context = np.zeros((len(causes), len(t0)), np.int64), np.zeros((len(causes), len(t0)), np.int64)
    at = [causes.index(c) for c in ledger.causes]
    parts[at], context[at] = charged.parts, charged.context
    parts[causes.index("frontend")] = handed - emitted
    parts[causes.index("network")] = t1 - handed
    return _kept(causes, request, t0, t1, parts, context, d.tokens[later][found], 0, unmatched)


def holders(run: Run) -> Ints:
    """For each delivery the row in `Run.emissions` that brought its first token; -1 where none did."""
    d, e = run.deliveries, run.emissions
    out = np.full(len(d.t), -1)
    for boundary in range(len(BOUNDARIES)):
        rows = np.flatnonzero((d.boundary == boundary) & (d.tokens > 0))
        request = d.request[rows]
        out[rows] = _holder(e.request, e.tokens, request, before(request, d.tokens[rows]))
    return out


def _kept(
    causes: tuple[str, ...], request: Ints, t0: Ints, t1: Ints, parts: Ints, context: Ints, tokens: Ints,
    never_admitted: int, unmatched: int,
) -> Waits:  # fmt: skip
    """Leave out the causes that occur nowhere."""
    keep = parts.any(axis=1) | context.any(axis=1)
    causes, parts, context = tuple(np.array(causes)[keep].tolist()), parts[keep], context[keep]
    primary = primaries(causes, parts, t1 - t0)
    return Waits(
        causes, request, t0, t1, np.ascontiguousarray(parts.T), np.ascontiguousarray(context.T), primary, tokens,
        never_admitted, unmatched,
    )  # fmt: skip


def _own_tok(run: Run, request: Ints, t0: Ints, t1: Ints) -> tuple[Ints, Ints, Ints]:
    """Each wait's own tokenizing inside it: (wait, start, end), disjoint."""
    s = run.segments
    code = run.names.index("tok") if "tok" in run.names else -1
    rows = np.flatnonzero((s.name == code) & (s.request >= 0) & (s.device == 0) & (s.t1 > s.t0))
    order = rows[np.argsort(s.request[rows], kind="stable")]
    lo = np.searchsorted(s.request[order], request, "left")
    at, wait = expand(lo, np.searchsorted(s.request[order], request, "right") - lo)
    a, b = np.maximum(s.t0[order[at]], t0[wait]), np.minimum(s.t1[order[at]], t1[wait])
    axis = _axis(t0, t1)
    start, end = union(axis[wait] + a, axis[wait] + np.maximum(a, b))
    wait = np.searchsorted(axis + t0, start, "right") - 1
    return wait, start - axis[wait], end - axis[wait]


def _delayed(
    run: Run, ledger: Ledger, request: Ints, wait: Ints, a: Ints, b: Ints, cut: tuple[Ints, Ints, Ints],
    t0: Ints, t1: Ints,
) -> Ints:  # fmt: skip
    """Run-queue delay in own tokenizing after admission: not `os`, for it is charged whole. ns a wait."""
    out = np.zeros(len(t0), np.int64)
    late = b > a
    if "os" in ledger.causes and late.any():
        axis, tok = _axis(t0, t1), run.names.index("tok")
        away = union(axis[cut[0]] + cut[1], axis[cut[0]] + cut[2])
        start, end, row = subtract(axis[wait[late]] + a[late], axis[wait[late]] + b[late], *away)
        wait = wait[late][row]
        np.add.at(out, wait, ledger.waited(start - axis[wait], end - axis[wait], request[wait], tok))
    return out


def _axis(t0: Ints, t1: Ints) -> Ints:
    """What to add to a time inside each wait to lay all waits one behind the other."""
    length = t1 - t0 + 2
    return np.asarray(np.cumsum(length) - length - t0)


def _holder(request: Ints, tokens: Ints, wanted: Ints, token: Ints) -> Ints:
    """The row that brought the token of that number (from 0) to each wanted request; -1 where none did."""
    reached = np.cumsum(tokens)
    first = np.searchsorted(request, wanted, "left")
    earlier = np.where(first > 0, reached[np.maximum(first - 1, 0)], 0) if len(reached) else first
    row = np.searchsorted(reached, earlier + token, "right")
    inside = row < np.searchsorted(request, wanted, "right")
    return np.where(inside, row, -1)


def _frontend_stamps(run: Run, request: Ints, token: Ints, otherwise: Ints) -> Ints:
    """When the frontend had each token; `otherwise` where it left no stamp."""
    d = run.deliveries
    rows = np.flatnonzero((d.boundary == BOUNDARIES.index("frontend")) & (d.tokens > 0))
    if not len(rows):
        return otherwise
    at = _holder(d.request[rows], d.tokens[rows], request, token)
    return np.where(at >= 0, d.t[rows[np.maximum(at, 0)]], otherwise)
