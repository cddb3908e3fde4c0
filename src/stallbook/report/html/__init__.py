"""The report as one offline page (`dumps`), and as a picture for chats and tickets (`picture.dumps`)."""

from __future__ import annotations

__all__: list[str] = []
