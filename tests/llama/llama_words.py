"""What the tiny model's vocabulary is made of."""

from __future__ import annotations

SYLLABLES = "ka lo mi ren tu vash po ni ste qua dor el in ash ber ton fi gra hu je".split()
