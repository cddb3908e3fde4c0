"""The command `transformers`, with the log of its continuous batching switched on: there it says whom it evicts."""

from __future__ import annotations

import logging

from transformers.cli.transformers import main

if __name__ == "__main__":
    logging.getLogger("ContinuousBatchingLogger").setLevel(logging.INFO)
    main()
