"""What stallbook writes into the folder of a log, and nobody else: only such a folder may be replaced or removed."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from stallbook.errors import StallbookError
from stallbook.record import manifest
from stallbook.record.spool import MAGIC

__all__ = ["check_ours", "foreign"]

_SIGNATURE: Final = MAGIC[:6]


def foreign(folder: Path) -> str:
    """The name of something in a folder that no recorder put there; empty if there is none."""
    return next((entry.name for entry in sorted(folder.iterdir()) if not _ours(entry)), "")


def _ours(entry: Path) -> bool:
    if entry.is_symlink() or not entry.is_file():
        return False
    if entry.suffix == ".spool":
        with entry.open("rb") as file:
            head = file.read(len(_SIGNATURE))
        return head == _SIGNATURE or not head.strip(b"\0")  # its process was killed before it wrote anything
    return entry.name == manifest.NAME or entry.name.removeprefix(f".{manifest.NAME}.").isdecimal()


def check_ours(path: Path) -> None:
    """Refuse a place that is no log, or in which something else lies too."""
    try:
        if path.is_symlink() or not (path / manifest.NAME).is_file():
            what = "is no log of stallbook, so it is not overwritten"
            raise StallbookError("not-a-log", what, "choose another name, or remove it", str(path))
        other = foreign(path)
    except OSError as error:
        raise StallbookError("unreadable", error.strerror or str(error), "check the folder", str(path)) from None
    if other:
        what = f"holds {other!r:.200}, which is not stallbook's, so it is not overwritten"
        raise StallbookError("not-a-log", what, "choose another name, or move that away", str(path))
