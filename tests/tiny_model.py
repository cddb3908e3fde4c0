"""A random Llama with a tokenizer trained on the spot: `python tiny_model.py FOLDER`. Nothing is downloaded.

Tiny, unless `--width` and `--layers` say otherwise: a step of the tiny one is nearly all the engine's own work.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

VOCABULARY = 4096
CONTEXT = 8192
SPECIAL = ["<s>", "</s>", "<pad>"]
SYLLABLES = [
    "ka",
    "lo",
    "mi",
    "ren",
    "tu",
    "vash",
    "po",
    "ni",
    "ste",
    "qua",
    "dor",
    "el",
    "in",
    "ash",
    "ber",
    "ton",
    "fi",
    "gra",
    "hu",
    "je",
]


def words(rng: random.Random, count: int) -> str:
    """Made-up text of so many words."""
    return " ".join("".join(rng.choices(SYLLABLES, k=rng.randint(1, 4))) for _ in range(count))


def make(folder: Path, width: int = 128, layers: int = 2, endless: bool = False) -> None:
    """Write the model and its tokenizer. width: of a token's vector, a multiple of 64."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    rng = random.Random(0)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator((words(rng, 40) for _ in range(3000)), trainer)
    start, end, pad = SPECIAL
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=start, eos_token=end, pad_token=pad, model_max_length=CONTEXT
    )
    wrapped.chat_template = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"
    wrapped.save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=width, intermediate_size=2 * width, num_hidden_layers=layers,
        num_attention_heads=width // 32, num_key_value_heads=width // 64, head_dim=32, max_position_embeddings=CONTEXT,
        bos_token_id=0, eos_token_id=1, pad_token_id=2, tie_word_embeddings=False,
    )  # fmt: skip
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    if endless:
        model.generation_config.eos_token_id = -1
    model.save_pretrained(folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--endless", action="store_true", help="never end an answer by itself")
    make(**vars(parser.parse_args()))
