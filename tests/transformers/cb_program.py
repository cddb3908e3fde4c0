"""A program that serves with continuous batching in process: requests are lines of JSON on stdin, answers on stdout.

`python cb_program.py MODEL [--KEY VALUE ...]`, the keys being those of `ContinuousBatchingConfig`. It knows nothing of
stallbook. A line `null` asks for its counts: tokens from the outputs, preemptions from what transformers logs.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
from random import Random
from typing import Any

import torch
from transformers import AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig
from transformers.generation.continuous_batching import continuous_api

COUNTED = {"tokens": 0, "preemptions": 0}


class Counter(logging.Handler):
    """transformers says whom it takes the cache from, and how many."""

    def emit(self, record: logging.LogRecord) -> None:
        if found := re.match(r"Offloaded (\d+) requests", record.getMessage()):
            COUNTED["preemptions"] += int(found[1])


def answers(manager: Any) -> None:
    """Print each answer once it is whole."""
    while True:
        output = manager.get_result(timeout=0.2)
        if output is not None and output.is_finished():
            COUNTED["tokens"] += len(output.generated_tokens)
            told = {"name": output.request_id, "tokens": len(output.generated_tokens), "error": output.error or ""}
            print(json.dumps(told), flush=True)


def main() -> None:
    """Serve until stdin ends."""
    logger = continuous_api.logger
    logger.setLevel(logging.INFO)
    logger.addHandler(Counter())
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32, attn_implementation="sdpa")
    config = ContinuousBatchingConfig(**{
        key.removeprefix("--"): json.loads(value) for key, value in zip(sys.argv[2::2], sys.argv[3::2], strict=True)
    })  # fmt: skip
    generation = GenerationConfig(do_sample=False, eos_token_id=-1, max_new_tokens=4096)
    manager = model.init_continuous_batching(generation_config=generation, continuous_batching_config=config)
    manager.start()
    threading.Thread(target=answers, args=(manager,), daemon=True).start()
    print("ready", flush=True)
    for line in sys.stdin:
        told = json.loads(line)
        if told is None:
            print(json.dumps(COUNTED), flush=True)
        else:
            rng = Random(told["seed"])
            prompt = [rng.randint(3, 3600) for _ in range(told["prompt"])]
            manager.add_request(prompt, request_id=told["name"], max_new_tokens=told["limit"], streaming=True)
    manager.stop(block=True, timeout=30)


if __name__ == "__main__":
    main()
