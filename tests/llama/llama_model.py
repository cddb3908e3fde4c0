"""A tiny random Llama as GGUF, with a vocabulary made up on the spot: `python llama_model.py FILE`.

Nothing is downloaded. Needs the package `gguf`. Bytes are tokens too, so that any prompt can be spelled, but the
output never prefers one: what is sampled is words, each a chunk of its own.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

VOCABULARY = 1024
CONTEXT = 8192
WIDTH, LAYERS, HEADS, HIDDEN = 256, 4, 4, 512
FIRST_WORD = 259
"""The tokens from here on are words; before them are bytes and marks."""
SYLLABLES = ("ka", "lo", "mi", "ren", "tu", "vash", "po", "ni", "ste", "qua", "dor", "el", "in", "ash", "ber", "ton")


def tokens() -> tuple[list[str], list[int]]:
    """The vocabulary with the kind of each token."""
    rng = random.Random(0)
    words: dict[str, None] = {}
    while len(words) < VOCABULARY - FIRST_WORD:
        words["▁" + "".join(rng.choices(SYLLABLES, k=rng.randint(1, 3)))] = None
    kinds = gguf.TokenType
    told = [("<unk>", kinds.UNKNOWN), ("<s>", kinds.CONTROL), ("</s>", kinds.CONTROL)]
    told += [(f"<0x{byte:02X}>", kinds.BYTE) for byte in range(256)]
    told += [(word, kinds.NORMAL) for word in words]
    return [text for text, _ in told], [int(kind) for _, kind in told]


def make(path: Path) -> None:
    """Write the model."""
    draw = np.random.default_rng(0)
    texts, kinds = tokens()

    def matrix(rows: int, columns: int) -> npt.NDArray[np.float32]:
        return (draw.standard_normal((rows, columns)) / columns**0.5).astype(np.float32)

    file = gguf.GGUFWriter(path, "llama")
    file.add_name("tiny random llama")
    file.add_context_length(CONTEXT)
    file.add_embedding_length(WIDTH)
    file.add_block_count(LAYERS)
    file.add_feed_forward_length(HIDDEN)
    file.add_head_count(HEADS)
    file.add_head_count_kv(HEADS)
    file.add_layer_norm_rms_eps(1e-5)
    file.add_rope_dimension_count(WIDTH // HEADS)
    file.add_vocab_size(VOCABULARY)
    file.add_tokenizer_model("llama")
    file.add_token_list(texts)
    file.add_token_scores([-float(i) for i in range(len(texts))])
    file.add_token_types(kinds)
    file.add_bos_token_id(1)
    file.add_eos_token_id(2)
    file.add_chat_template("{% for message in messages %}{{ message['content'] }}\n{% endfor %}")
    output = matrix(VOCABULARY, WIDTH)
    output[:FIRST_WORD] = 0
    ones = np.ones(WIDTH, dtype=np.float32)
    file.add_tensor("token_embd.weight", matrix(VOCABULARY, WIDTH))
    file.add_tensor("output_norm.weight", ones)
    file.add_tensor("output.weight", output)
    for i in range(LAYERS):
        for name in ("attn_norm", "ffn_norm"):
            file.add_tensor(f"blk.{i}.{name}.weight", ones)
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            file.add_tensor(f"blk.{i}.{name}.weight", matrix(WIDTH, WIDTH))
        file.add_tensor(f"blk.{i}.ffn_gate.weight", matrix(HIDDEN, WIDTH))
        file.add_tensor(f"blk.{i}.ffn_up.weight", matrix(HIDDEN, WIDTH))
        file.add_tensor(f"blk.{i}.ffn_down.weight", matrix(WIDTH, HIDDEN))
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


if __name__ == "__main__":
    make(Path(sys.argv[1]))
