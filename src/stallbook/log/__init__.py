"""Logs in and out: any file that holds a recording to a `Run`, and a `Run` to a file.

A file is known by its content, not by its name: a folder is a bundle, a zip one of the post's logs, text (gzipped or
not) the interchange format or what llama.cpp's server logs.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from stallbook.errors import StallbookError
from stallbook.log.draft import Draft
from stallbook.log.llama_lines import is_events, is_llama
from stallbook.run import Run

__all__ = ["Draft", "open", "open_run", "write"]

_READS: Final = (
    "stallbook reads its own .stall folders, JSON Lines (.jsonl, .jsonl.gz), the post's .npz and llama.cpp's log"
)
_FOREIGN: Final = {
    b"PAR1": "a Parquet file: gaps or a table, not a recording",
    b"\x93NUMPY": "a single NumPy array, not a recording",
    b"\x89PNG": "a PNG image",
    b"\xff\xfe": "text in UTF-16",
    b"\xfe\xff": "text in UTF-16",
    b"\x28\xb5\x2f\xfd": "Zstandard data",
    b"BZh": "bzip2 data",
    b"\xfd7zXZ": "xz data",
    b"SQLite": "an SQLite database",
}


def open_run(path: str | os.PathLike[str], progress: Callable[[int, int], None] | None = None) -> Run:
    """The recording at `path`, whatever its format; `StallbookError` names the place of anything wrong in it.

    progress: called now and then with the bytes that were read of a long log, and those there are.
    """
    return _read(Path(path), progress).finish()


open = open_run  # noqa: A001


def _read(path: Path, progress: Callable[[int, int], None] | None) -> Draft:
    where = str(path)
    try:
        try:
            mode = path.stat().st_mode
        except ValueError:
            raise StallbookError("missing", "no path of a file", "check the path", repr(where)) from None
        if stat.S_ISDIR(mode):
            from stallbook.log.bundle import read_bundle

            return read_bundle(path)
        if not stat.S_ISREG(mode):
            raise StallbookError("not-a-file", "not a regular file or folder", "save the log to a file first", where)
        with path.open("rb") as file:
            head = file.read(4096)
        return _read_file(path, head, progress)
    except FileNotFoundError:
        raise StallbookError("missing", "there is no such file", "check the path", where) from None
    except PermissionError:
        raise StallbookError(
            "permission", "not allowed to read it", "ask its owner, or check its mode", where
        ) from None
    except OSError as error:
        what = f"cannot be read ({error.strerror or error})"
        raise StallbookError("unreadable", what, "check the path and the disk", where) from None


def _read_file(path: Path, head: bytes, progress: Callable[[int, int], None] | None) -> Draft:
    if not head:
        raise StallbookError(
            "empty", "the file is empty", "a log begins with a header; record the run again", str(path)
        )
    if head.startswith(b"PK"):
        from stallbook.log.npz import read_npz

        return read_npz(path)
    for magic, what in _FOREIGN.items():
        if head.startswith(magic):
            raise StallbookError("foreign", what, _READS, str(path))
    if is_llama(head):
        from stallbook.log.llama import read_llama

        return read_llama(path, progress)
    if is_events(head):
        what, remedy = "a client's stream, not a log", "give the server's log, and this file with --client"
        raise StallbookError("foreign", what, remedy, str(path))
    if not head.startswith(b"\x1f\x8b") and not head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        kind = "binary data" if b"\0" in head else "text that is not JSON Lines"
        raise StallbookError("foreign", f"{kind}, not a log", _READS, str(path))
    from stallbook.log.jsonl import read_jsonl

    return read_jsonl(path)


def write(run: Run, path: str | os.PathLike[str], force: bool = False) -> None:
    """Writes `run` in the format that the suffix names: .jsonl, .jsonl.gz or .stall. Overwrites only with `force`."""
    name = Path(path).name
    if name.endswith((".jsonl", ".jsonl.gz")):
        from stallbook.log.jsonl_write import write_jsonl

        write_jsonl(run, path, force=force)
    elif name.endswith(".stall"):
        from stallbook.log.bundle import write_bundle

        write_bundle(run, Path(path), force=force)
    else:
        raise StallbookError("suffix", "not a format to write", "name it .jsonl, .jsonl.gz or .stall", str(path))
