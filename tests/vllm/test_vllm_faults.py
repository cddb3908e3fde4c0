"""Faults planted in a real server, and whether their cause is found: for at least 95% of the gaps that they affect."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import Random

import numpy as np
import numpy.typing as npt
import pytest
from vllm_faults import Told, pin, plant, read_journals, truth
from vllm_load import Ask, calm, ids, load
from vllm_server import LARGE_POOL, LAYOUTS, TWO, Layout, serving

import stallbook as sb
from stallbook.inject.score import Score, score
from stallbook.partition import Partition
from stallbook.run import Ints
from stallbook.waits import boundary_gaps

KINDS = ["collection"] * 10 + ["burst"] * 6 + ["competitor"] * 16 + ["pool"] * 30 + ["blocked"] * 8
STREAMS, REQUESTS, TOKENS, PROMPT = 10, 300, 1500, 2500
CAUSES = ("gc", "prefill", "os", "preempt")
ENOUGH, FEWEST = 0.95, 5


@dataclass
class Faulty:
    """One server's life under faults."""

    partition: Partition
    told: Told
    score: Score


@pytest.fixture(scope="module", params=LAYOUTS, ids=lambda layout: layout.name)
def faulty(request: pytest.FixtureRequest, home: Path, tmp_path_factory: pytest.TempPathFactory) -> Faulty:
    layout: Layout = request.param
    folder = tmp_path_factory.mktemp(f"faults-{layout.name}")
    (journal := folder / "journal").mkdir()
    environment = {"STALLBOOK_FAULTS": str(journal)}
    with serving(
        home, folder / "server.txt", layout, folder / "out.stall", blocks=LARGE_POOL, environment=environment
    ) as server:  # fmt: skip
        pin(server, 0)
        told = Told()
        streams = threading.Thread(target=load, args=(server.url, calm(7, REQUESTS, TOKENS), STREAMS))
        streams.start()
        load(server.url, calm(8, 1, 60, "first"))  # until all are decoding
        rng, sent = Random(3), count()

        def burst() -> None:
            load(server.url, [Ask(f"burst-{next(sent)}", ids(rng, PROMPT), 1) for _ in range(2)])

        plant(server, told, KINDS, 1, burst)
        alive = streams.is_alive()
    streams.join()
    told.lines = read_journals(journal)
    told.save(folder / "told.json")
    assert alive, "the streams ended before the faults did: let there be more"
    partition = sb.partition(sb.open(folder / "out.stall"))
    return Faulty(partition, told, score(truth(told, layout is TWO), partition))


@pytest.mark.parametrize("cause", CAUSES)
def test_the_cause_is_found(faulty: Faulty, cause: str) -> None:
    found, one = faulty.score, faulty.score.causes[cause]
    total = one.true_positive + one.false_negative
    print(f"{cause}: {one.true_positive} of {total} affected gaps, left out {found.left_out}, alarms {found.alarms}")
    print(*[miss for miss in found.misses if miss.right == cause][:5], sep="\n")
    assert total >= FEWEST, "too few gaps were affected to say"
    assert one.recall is not None
    assert one.recall >= ENOUGH


def test_it_reconciles(faulty: Faulty) -> None:
    assert faulty.score.reconciled


def _hit(t0: Ints, t1: Ints, stops: list[tuple[int, int]]) -> npt.NDArray[np.bool_]:
    """The waits of which a stop takes more than half."""
    stopped = np.zeros(len(t0), np.int64)
    for a, b in stops:
        stopped += np.maximum(np.minimum(t1, b) - np.maximum(t0, a), 0)
    return np.asarray(2 * stopped > t1 - t0)


def test_a_blocked_api_server_is_delay_after_emission(faulty: Faulty) -> None:
    waits = boundary_gaps(faulty.partition, "frontend")
    hit = _hit(waits.t0, waits.t1, faulty.told.stops)
    assert hit.sum() >= FEWEST
    right = waits.primary[hit] == waits.causes.index("frontend")
    print(f"frontend: {right.sum()} of {hit.sum()}")
    assert right.mean() >= ENOUGH


def test_and_it_is_no_gap_of_the_engine(faulty: Faulty) -> None:
    p = faulty.partition
    hit = _hit(p.gaps.t0, p.gaps.t1, faulty.told.stops)
    length = p.gaps.t1 - p.gaps.t0
    calm = np.median(length)
    longest = [b - a for a, b in faulty.told.stops]
    print(f"engine gaps meanwhile: median {np.median(length[hit]) / 1e6:.1f} ms, all {calm / 1e6:.1f} ms")
    assert np.median(length[hit]) < 2 * calm
    assert (length[hit] < min(longest)).mean() >= ENOUGH
