"""`Limits`: the knobs of the scheduler's policy, as the settings of a run give them."""

from __future__ import annotations

from dataclasses import dataclass

from stallbook.demo.settings import Settings

__all__ = ["Limits", "limits_of"]


@dataclass(frozen=True, slots=True)
class Limits:
    """The knobs of the policy."""

    kv_blocks: int = 1000
    max_num_seqs: int = 48
    token_budget: int = 2048
    capture_sizes: tuple[int, ...] = (1, 2, 4, 8, 16, 24, 32)
    admit_watermark: float = 0.0
    recompute: bool = False
    decode_weight: float = 1.0
    """What a decode takes of the budget: as much as so many tokens of a prompt."""
    context_weight: float = 0.0
    """What a prompt's token takes of it beyond 1, for each token before it."""
    forecast: bool = False
    """Hold the watermark against the blocks that will be free at the fullest moment to come, not now."""

    def left_for_prefill(self, decodes: int) -> float:
        """What is left of the budget after so many decodes."""
        return self.token_budget - self.decode_weight * decodes


def limits_of(settings: Settings) -> Limits:
    """The scheduler's part of the settings."""
    return Limits(
        kv_blocks=settings.kv_blocks,
        max_num_seqs=settings.max_num_seqs,
        token_budget=settings.token_budget,
        capture_sizes=settings.capture_sizes,
        admit_watermark=settings.admit_watermark,
        recompute=settings.preemption == "recompute",
        decode_weight=settings.decode_weight,
        context_weight=settings.context_weight,
        forecast=settings.admit_by == "forecast",
    )
