"""Sets of runs against sets of runs, with an answer or a refusal: a run is the sample, a gap is not."""

from __future__ import annotations

from stallbook.compare.alike import KEYS, Difference
from stallbook.compare.sample import Sample, sampled
from stallbook.compare.sets import Answer, Comparison, compare, compare_samples

__all__ = ["KEYS", "Answer", "Comparison", "Difference", "Sample", "compare", "compare_samples", "sampled"]
