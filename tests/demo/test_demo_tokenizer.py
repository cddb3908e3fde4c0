"""The tokenizer gives the same ids wherever it runs, and its process neither blocks the loop nor outlives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from random import Random

import pytest

from stallbook.demo.ports import Tokenized
from stallbook.demo.tokenizer import LoopIntake, ProcessIntake, trained
from stallbook.demo.workload import MAX_PROMPT, make_text
from stallbook.errors import StallbookError


@pytest.fixture(scope="module")
def intake() -> Iterator[ProcessIntake]:
    worker = ProcessIntake()
    yield worker
    worker.close()


def collect(intake: ProcessIntake, count: int) -> list[Tokenized]:
    ready: list[Tokenized] = []
    for _ in range(20_000):
        ready += intake.poll()
        if len(ready) == count:
            return ready
        time.sleep(0.001)
    raise AssertionError("the worker did not answer")


def test_words_of_the_workload_are_single_tokens() -> None:
    assert trained().get_vocab_size() == 4096
    text = make_text(Random(5), 3000)
    ids = LoopIntake().submit(0, text)
    assert ids is not None
    assert 3 < len(text) / len(ids) < 6


def test_a_document_is_tokenized_whole_and_cut_after() -> None:
    ids = LoopIntake().submit(0, make_text(Random(1), 30_000))
    assert ids is not None
    assert len(ids) == MAX_PROMPT
    assert LoopIntake().submit(0, "") == [0]


def test_the_process_gives_the_same_ids_in_order(intake: ProcessIntake) -> None:
    texts = [make_text(Random(i), size) for i, size in enumerate((10, 5000, 700_000, 3, 900))]
    texts.append("grün, 東京, 🚉")
    for key, text in enumerate(texts):
        assert intake.submit(key, text) is None  # 1.4 MB more than a pipe holds: it must not block
    ready = collect(intake, len(texts))
    assert [item.key for item in ready] == list(range(len(texts)))
    loop = LoopIntake()
    assert [item.ids for item in ready] == [loop.submit(0, text) for text in texts]


def test_a_dead_worker_is_an_error_with_a_remedy() -> None:
    worker = ProcessIntake()
    worker._child.kill()
    worker._child.wait()
    with pytest.raises(StallbookError, match="ended"):
        worker.poll()
    worker.close()


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs CPU affinity")
def test_the_process_is_pinned_where_it_was_told() -> None:
    cpu = min(os.sched_getaffinity(0))
    worker = ProcessIntake((cpu,))
    assert os.sched_getaffinity(worker._child.pid) == {cpu}
    worker.close()
    assert worker._child.returncode is not None
    with pytest.raises(StallbookError, match="did not start"):
        ProcessIntake((4000,))


def test_the_process_steps_back_as_far_as_it_was_told() -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    worker = ProcessIntake(nice=3)
    assert os.getpriority(os.PRIO_PROCESS, worker._child.pid) == min(own + 3, 19)
    worker.close()


def test_a_killed_engine_takes_its_worker_along() -> None:
    code = (
        "import time; from stallbook.demo.tokenizer import ProcessIntake; w = ProcessIntake();"
        "w.submit(0, 'word ' * 400_000); print(w._child.pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    for _ in range(2000):
        try:
            with open(f"/proc/{worker}/stat") as file:  # noqa: PTH123
                if file.read().split()[2] == "Z":
                    return
        except FileNotFoundError:
            return
        time.sleep(0.01)
    raise AssertionError("the tokenizer's process outlived its engine")
