"""A real byte-pair tokenizer, trained at start-up, and the two places where it can run.

On the engine loop (`LoopIntake`) a pasted document stalls every request in flight. In a process of its own
(`ProcessIntake`) it does not, but the work remains: where the engine needs every core, it comes back as
contention.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import subprocess
import sys
from functools import cache
from random import Random
from typing import IO, Any, Final

from stallbook.demo.ports import Tokenized
from stallbook.demo.workload import MAX_PROMPT, make_text
from stallbook.errors import StallbookError

__all__ = ["FRAME", "LoopIntake", "ProcessIntake", "encode", "trained"]

VOCABULARY: Final = 4096
FRAME: Final = struct.Struct("<qI")
"""Key and length of a message in either direction; texts go as UTF-8, ids as 32-bit integers."""
PIPE_BYTES: Final = 1 << 20


@cache
def trained() -> Any:
    """The tokenizer, trained once a process on the workload's own prose (about 0.7 s)."""
    try:
        from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    except ImportError:
        raise StallbookError(
            "missing-extra", "the demonstrator needs `tokenizers`", "install it with: pip install 'stallbook[demo]'"
        ) from None
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = split
    random = Random("corpus")
    corpus = [make_text(random, 400) for _ in range(3000)]
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, show_progress=False, initial_alphabet=sorted(split.alphabet()))
    tokenizer.train_from_iterator(corpus, trainer)
    return tokenizer


def encode(text: str) -> list[int]:
    """A prompt's token ids: all of the text is tokenized, then cut to what the model takes."""
    ids: list[int] = trained().encode(text).ids
    return ids[:MAX_PROMPT] or [0]


class LoopIntake:
    """Tokenizes where it is called: on the loop."""

    on_loop = True

    def submit(self, key: int, text: str) -> list[int] | None:
        """See `Intake`."""
        return encode(text)

    def poll(self) -> list[Tokenized]:
        """Nothing is ever late."""
        return []

    def close(self) -> None:
        """Nothing to give up."""


class ProcessIntake:
    """Tokenizes in a worker process, first come first served.

    The worker inherits two pipes and nothing else, and ends when its input does, so it cannot outlive the run,
    however the run dies. Neither end ever blocks the loop: what the pipe does not take now waits in a buffer.
    """

    on_loop = False

    def __init__(self, cpus: tuple[int, ...] | None = None, nice: int = 0) -> None:
        command = [sys.executable, "-m", "stallbook.demo.worker", str(nice), *map(str, cpus or ())]
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._in: IO[bytes] = self._child.stdin
        self._out: IO[bytes] = self._child.stdout
        self._unsent = bytearray()
        self._unread = bytearray()
        try:
            self._await_ready()
        except BaseException:
            self.close()
            raise
        for pipe in (self._in, self._out):
            os.set_blocking(pipe.fileno(), False)
            if hasattr(fcntl, "F_SETPIPE_SZ"):
                with contextlib.suppress(OSError):  # a smaller pipe only takes more passes
                    fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def _await_ready(self) -> None:
        answer = self._out.read(1)
        if answer != b"+":
            remedy = "check tokenizer_cpus against the CPUs of this machine, or use tokenize=loop"
            raise StallbookError("tokenizer", "the tokenizer's process did not start", remedy)

    def submit(self, key: int, text: str) -> list[int] | None:
        """See `Intake`."""
        data = text.encode()
        self._unsent += FRAME.pack(key, len(data))
        self._unsent += data
        self._send()
        return None

    def poll(self) -> list[Tokenized]:
        """See `Intake`."""
        if self._unsent:
            self._send()
        try:
            data = os.read(self._out.fileno(), PIPE_BYTES)
        except BlockingIOError:
            return []
        if not data:
            raise StallbookError("tokenizer", "the tokenizer's process ended", "run it again, or use tokenize=loop")
        self._unread += data
        return self._messages()

    def _messages(self) -> list[Tokenized]:
        ready, at = [], 0
        while len(self._unread) - at >= FRAME.size:
            key, size = FRAME.unpack_from(self._unread, at)
            end = at + FRAME.size + size
            if end > len(self._unread):
                break
            ids = struct.unpack_from(f"<{size // 4}I", self._unread, at + FRAME.size)
            ready.append(Tokenized(key, list(ids)))
            at = end
        del self._unread[:at]
        return ready

    def _send(self) -> None:
        try:
            sent = os.write(self._in.fileno(), self._unsent)
        except BlockingIOError:
            return
        except BrokenPipeError:
            raise StallbookError(
                "tokenizer", "the tokenizer's process ended", "run it again, or use tokenize=loop"
            ) from None
        del self._unsent[:sent]

    def close(self) -> None:
        """End the worker: at the end of its input it stops; a busy one is killed."""
        self._in.close()
        self._out.close()
        try:
            self._child.wait(1.0)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
