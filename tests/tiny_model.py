"""A tiny random Llama with a tokenizer trained on the spot: `python tiny_model.py FOLDER`. Nothing is downloaded."""

from __future__ import annotations

import random
import sys
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


def make(folder: Path) -> None:
    """Write the model and its tokenizer."""
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
        vocab_size=VOCABULARY, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=32, max_position_embeddings=CONTEXT, bos_token_id=0, eos_token_id=1,
        pad_token_id=2, tie_word_embeddings=False,
    )  # fmt: skip
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
