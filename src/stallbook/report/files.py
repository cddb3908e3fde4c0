"""Output files that are either whole or not there: written beside their place, then renamed into it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from stallbook.errors import StallbookError

__all__ = ["refuse_existing", "remedy", "whole_file"]

_REMEDY: Final = {
    errno.EACCES: "choose a place that you may write to",
    errno.EPERM: "choose a place that you may write to",
    errno.EROFS: "choose a place that is not read-only",
    errno.ENOENT: "check the path, and create its folder first",
    errno.ENOTDIR: "check the path: a part of it is a file",
    errno.EISDIR: "give the name of a file, not of a folder",
    errno.ENOSPC: "free some space, or write somewhere else",
    errno.EDQUOT: "free some space, or write somewhere else",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EMFILE: "allow more open files (ulimit -n)",
}


def remedy(error: OSError) -> str:
    """What a reader can do about a failed read or write."""
    return _REMEDY.get(error.errno or 0, "check the path and the disk")


def refuse_existing(path: Path, *, force: bool) -> None:
    """Say no to overwriting, unless asked to."""
    if path.is_symlink() or path.exists():
        if not force:
            raise StallbookError("exists", "is there already", "choose another name, or add --force", str(path))
        if path.is_dir():
            raise StallbookError("not-a-file", "is a folder", "give the name of a file", str(path))
        if path.exists() and not path.is_file():  # a device or a pipe: renaming onto it would remove it
            raise StallbookError("not-a-file", "is not a regular file", "leave --out away, or name a file", str(path))


@contextmanager
def whole_file(path: Path, *, force: bool = False) -> Iterator[Path]:
    """A place to write to that becomes `path` when all went well, and vanishes when anything did not."""
    refuse_existing(path, force=force)
    part = path.with_name(f".{path.name[:200]}.{os.getpid()}.part")
    try:
        yield part
        part.replace(path)
    except OSError as error:
        what = (error.strerror or str(error)).lower()
        raise StallbookError("unwritable", f"cannot be written: {what}", remedy(error), str(path)) from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
