"""A transformer with random weights in NumPy, and the KV cache it attends over.

Its tokens mean nothing; its cost is real: matrix products over the batch, attention of each row over its own
past. Weights are scaled so that attention and the feed-forward layer both move the next token, and that the
winning logit leads by far more than rounding: every path computes the same tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from stallbook.demo.workload import MAX_NEW, MAX_PROMPT

__all__ = ["MAX_TOKENS", "VOCABULARY", "KvSlots", "Model", "NumpyExecutor"]

LAYERS, WIDTH, FEED, VOCABULARY = 2, 128, 512, 4096
MAX_TOKENS: Final = MAX_PROMPT + MAX_NEW
TILE: Final = 256
"""Query rows of a prefill chunk that are scored at once: bounds the score matrix to 3 MB."""

Floats = npt.NDArray[np.float32]


class KvSlots:
    """One slab of cache for each request that can run at once: keys and values by layer and position.

    Blocks are counted by the scheduler; the slabs only spare the loop from allocating memory. So all of it is touched
    here: memory that was never touched costs the first who does, 13 ms a slab on one machine, in the midst of a prompt.
    It is 6 MB for each request that can run, 300 MB by default.
    """

    def __init__(self, slots: int) -> None:
        shape = (slots, LAYERS, MAX_TOKENS, WIDTH)
        self.k: Floats = np.zeros(shape, np.float32)
        self.v: Floats = np.zeros(shape, np.float32)
        self.k.fill(0)
        self.v.fill(0)
        self._free = list(range(slots))
        self._slot: dict[int, int] = {}
        self._host: dict[int, tuple[Floats, Floats]] = {}

    def slot(self, key: int) -> int:
        """Where a request's cache lies; takes a slab on first use."""
        at = self._slot.get(key)
        if at is None:
            at = self._slot[key] = self._free.pop()
        return at

    def swap_out(self, key: int, tokens: int) -> None:
        """A real copy to the host, of what was computed and no more."""
        at = self._slot.pop(key)
        self._host[key] = (self.k[at, :, :tokens].copy(), self.v[at, :, :tokens].copy())
        self._free.append(at)

    def swap_in(self, key: int) -> None:
        """A real copy back, into whatever slab is free."""
        keys, values = self._host.pop(key)
        at = self.slot(key)
        self.k[at, :, : keys.shape[1]] = keys
        self.v[at, :, : keys.shape[1]] = values

    def drop(self, key: int) -> None:
        """Forget a request."""
        self._host.pop(key, None)
        at = self._slot.pop(key, None)
        if at is not None:
            self._free.append(at)


class Model:
    """The weights, and the three ways to run them."""

    def __init__(self, seed: int = 0) -> None:
        random = np.random.default_rng(seed)

        def matrix(rows: int, columns: int) -> Floats:
            return random.standard_normal((rows, columns), dtype=np.float32) / np.float32(np.sqrt(rows))

        self.embed: Floats = random.standard_normal((VOCABULARY, WIDTH), dtype=np.float32)
        self.qkv = [matrix(WIDTH, 3 * WIDTH) for _ in range(LAYERS)]
        for weights in self.qkv:
            weights[:, :WIDTH] /= np.float32(np.sqrt(WIDTH))  # the scale of the scores, folded into the queries
        self.out = [matrix(WIDTH, WIDTH) for _ in range(LAYERS)]
        self.up = [matrix(WIDTH, FEED) for _ in range(LAYERS)]
        self.down = [matrix(FEED, WIDTH) for _ in range(LAYERS)]
        self.head = matrix(WIDTH, VOCABULARY)
        self._future: Floats = np.triu(np.full((TILE, TILE), -1e9, np.float32), k=1)
        self._scores: Floats = np.zeros(TILE * MAX_TOKENS, np.float32)
        self.between: Callable[[], object] | None = None
        """Called between the products of a decode, each of which BLAS may have spread over its threads."""

    def decode(self, cache: KvSlots, slots: list[int], tokens: list[int], positions: list[int]) -> npt.NDArray[np.intp]:
        """The next token of each row. Products run over all rows at once, attention over each row's own past."""
        x = self.embed[tokens]
        between = self.between
        for layer in range(LAYERS):
            qkv = x @ self.qkv[layer]
            cache.k[slots, layer, positions] = qkv[:, WIDTH : 2 * WIDTH]
            cache.v[slots, layer, positions] = qkv[:, 2 * WIDTH :]
            mixed = np.empty_like(x)
            for row, (slot, position) in enumerate(zip(slots, positions, strict=True)):
                end = position + 1
                scores = cache.k[slot, layer, :end] @ qkv[row, :WIDTH]
                scores -= scores.max()
                np.exp(scores, out=scores)
                np.divide(scores @ cache.v[slot, layer, :end], scores.sum(), out=mixed[row])
                if between is not None:
                    between()
            x = self._mix(layer, x, mixed)
        best: npt.NDArray[np.intp] = (x @ self.head).argmax(axis=1)
        return best

    def prefill(self, cache: KvSlots, slot: int, tokens: list[int], start: int) -> None:
        """The KV of one chunk of one prompt: causal attention over all that came before."""
        x = self.embed[tokens]
        count = len(tokens)
        for layer in range(LAYERS):
            qkv = x @ self.qkv[layer]
            keys, values = cache.k[slot, layer], cache.v[slot, layer]
            keys[start : start + count] = qkv[:, WIDTH : 2 * WIDTH]
            values[start : start + count] = qkv[:, 2 * WIDTH :]
            if layer == LAYERS - 1:
                return  # nothing reads the last layer's output: the first token comes from the first decode
            mixed = np.empty_like(x)
            for low in range(0, count, TILE):
                high = min(count, low + TILE)
                self._attend(qkv[low:high, :WIDTH], keys, values, start + low, mixed[low:high])
            x = self._mix(layer, x, mixed)

    def _attend(self, queries: Floats, keys: Floats, values: Floats, start: int, out: Floats) -> None:
        rows = len(queries)
        end = start + rows
        scores = self._scores[: rows * end].reshape(rows, end)
        np.matmul(queries, keys[:end].T, out=scores)
        scores[:, start:] += self._future[:rows, :rows]
        scores -= scores.max(axis=1, keepdims=True)
        np.exp(scores, out=scores)
        np.matmul(scores, values[:end], out=out)
        out /= scores.sum(axis=1, keepdims=True)

    def _mix(self, layer: int, x: Floats, mixed: Floats) -> Floats:
        x = x + mixed @ self.out[layer]
        hidden = x @ self.up[layer]
        np.maximum(hidden, 0, out=hidden)
        x += hidden @ self.down[layer]
        return x


class NumpyExecutor:
    """The model and its cache behind the engine's `Executor` port."""

    def __init__(self, model: Model, slots: int) -> None:
        self.model = model
        self.cache = KvSlots(slots)

    def prefill(self, key: int, tokens: Sequence[int], start: int) -> None:
        """See `Executor`."""
        self.model.prefill(self.cache, self.cache.slot(key), list(tokens), start)

    def decode(self, keys: Sequence[int], tokens: Sequence[int], positions: Sequence[int], padded: int) -> list[int]:
        """One batched call. Padded rows repeat the first request's: the same work on the same memory, discarded."""
        surplus = padded - len(keys)
        slots = [self.cache.slot(key) for key in keys]
        slots += slots[:1] * surplus
        rows = list(tokens) + list(tokens[:1]) * surplus
        places = list(positions) + list(positions[:1]) * surplus
        best: list[int] = self.model.decode(self.cache, slots, rows, places)[: len(keys)].tolist()
        return best

    def decode_eager(self, keys: Sequence[int], tokens: Sequence[int], positions: Sequence[int]) -> list[int]:
        """A call a request: what a captured batch saves."""
        rows = zip(keys, tokens, positions, strict=True)
        run = self.model.decode
        return [int(run(self.cache, [self.cache.slot(key)], [token], [at])[0]) for key, token, at in rows]

    def swap_out(self, key: int, tokens: int) -> None:
        """See `Executor`."""
        self.cache.swap_out(key, tokens)

    def swap_in(self, key: int) -> None:
        """See `Executor`."""
        self.cache.swap_in(key)

    def drop(self, key: int) -> None:
        """See `Executor`."""
        self.cache.drop(key)
