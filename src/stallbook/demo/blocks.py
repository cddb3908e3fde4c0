"""Arithmetic of the block pool: KV cache is handed out in blocks of 16 tokens."""

from __future__ import annotations

from typing import Final

__all__ = ["BLOCK_TOKENS", "blocks_for"]

BLOCK_TOKENS: Final = 16


def blocks_for(tokens: int) -> int:
    """Blocks that hold this many tokens."""
    return -(-tokens // BLOCK_TOKENS)
