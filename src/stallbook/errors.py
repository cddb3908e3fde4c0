"""The one error that a user of stallbook can cause: bad input, named with its place and its remedy."""

from __future__ import annotations

__all__ = ["StallbookError"]


class StallbookError(Exception):
    """Bad input or usage. Prints as one line and ends a command with exit code 2.

    slug: a short, stable name of the kind of error, for tests and docs (``"truncated"``).
    where: the file and the place in it (``"run.jsonl:12"``); empty when there is none.
    what: what is wrong, in one clause.
    remedy: what the reader can do about it, in one clause.
    """

    def __init__(self, slug: str, what: str, remedy: str, where: str = "") -> None:
        self.slug, self.what, self.remedy, self.where = slug, what, remedy, where
        super().__init__(f"{where + ': ' if where else ''}{what}; {remedy}")
