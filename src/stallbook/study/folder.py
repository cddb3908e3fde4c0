"""The folder of a study: what it holds, how it is written, and when it is refused.

    study.json        what the study is: settings, rate, machine, versions; written once, atomically
    results.jsonl     a line per finished run: its report under both rules, its probe
    NAME.stall        the log of a finished run, ``baseline__s1.stall``
    unfinished/       the run that is going on; a log moves out of it when its run has ended
    tables.txt .md .json

A run is done when its results line exists and its log opens. Everything else is redone.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stallbook.errors import StallbookError
from stallbook.study.plan import Cell
from stallbook.study.rungs import EVERY

try:
    import fcntl
except ImportError:  # no such lock on this system: two studies in one folder are then the user's to avoid
    fcntl = None  # type: ignore[assignment]

__all__ = ["Folder", "finished_logs", "read_study"]

HEADER, RESULTS, UNFINISHED = "study.json", "results.jsonl", "unfinished"
TABLES = ("tables.txt", "tables.md", "tables.json")
_FILES = "|".join(re.escape(name) for name in (HEADER, RESULTS, *TABLES))
_LOGS = "|".join(rung.slug for rung in EVERY)
_OURS = re.compile(rf"{_FILES}|\.({_FILES})\..*|{UNFINISHED}|({_LOGS})__s[0-9]+\.stall")
""".NAME.xyz" is a write that a crash cut short."""


class Folder:
    """A study's folder, open for running. Use `Folder.claim`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    @contextlib.contextmanager
    def claim(cls, path: Path, *, force: bool = False) -> Iterator[Folder]:
        """Make or enter the folder and hold it for this process. `force` throws an earlier study's files away."""
        with contextlib.ExitStack() as held:
            with _as_errors(path):
                path.mkdir(parents=True, exist_ok=True)
                held.enter_context(_lock(path))
                _refuse_foreign(path)
                folder = cls(path)
                if force:
                    folder._clear()
                folder._unfinished.mkdir(exist_ok=True)  # now, not after the first run, the folder proves writable
                shutil.rmtree(folder._unfinished)
            yield folder

    @property
    def _unfinished(self) -> Path:
        return self.path / UNFINISHED

    def header(self) -> dict[str, Any] | None:
        """What study.json says; None in a new folder."""
        return _read_header(self.path)

    def write_header(self, header: Mapping[str, Any]) -> None:
        """Write study.json, whole or not at all."""
        self.write(HEADER, json.dumps(header, indent=2) + "\n")

    def results(self) -> list[dict[str, Any]]:
        """The finished runs, oldest first; a line torn by a crash is cut off the file."""
        lines, torn = _read_results(self.path)
        if torn:
            self.write(RESULTS, "".join(json.dumps(line) + "\n" for line in lines))
        return lines

    def append(self, line: Mapping[str, Any]) -> None:
        """Add a finished run: one write, on the disk before this returns."""
        with _as_errors(self.path):
            file = os.open(self.path / RESULTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                data = (json.dumps(line, allow_nan=False) + "\n").encode()
                while data:
                    data = data[os.write(file, data) :]
                os.fsync(file)
            finally:
                os.close(file)

    def log(self, cell: Cell) -> Path:
        """Where the log of a finished run lies."""
        return self.path / f"{cell.name}.stall"

    def start(self, name: str) -> Path:
        """Where a run may write its log now; leftovers of the same name are removed."""
        with _as_errors(self.path):
            self._unfinished.mkdir(exist_ok=True)
            place = self._unfinished / f"{name}.stall"
            _remove(place)
            return place

    def keep(self, cell: Cell) -> Path:
        """Move the log of a run that has ended to its place."""
        with _as_errors(self.path):
            _remove(self.log(cell))
            return self.start_place(cell).rename(self.log(cell))

    def start_place(self, cell: Cell) -> Path:
        """Where the unfinished log of a cell lies."""
        return self._unfinished / f"{cell.name}.stall"

    def tidy(self) -> None:
        """Remove the place of unfinished runs."""
        shutil.rmtree(self._unfinished, ignore_errors=True)

    def write(self, name: str, text: str) -> None:
        """Write a file of the study, whole or not at all."""
        with _as_errors(self.path):
            handle, temporary = tempfile.mkstemp(dir=self.path, prefix=f".{name}.")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                Path(temporary).replace(self.path / name)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise

    def _clear(self) -> None:
        """Remove the study, its header last: what a crash leaves behind is still known as a study."""
        for entry in sorted(self.path.iterdir(), key=lambda entry: entry.name == HEADER):
            _remove(entry)


def read_study(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The header and the finished runs of a study, without a change to its folder."""
    header = _read_header(path)
    if header is None:
        raise StallbookError(
            "no-study", "this is not the folder of a study", "name a folder that holds study.json", str(path)
        )
    return header, _read_results(path)[0]


def finished_logs(path: Path) -> list[Path]:
    """The logs of a study's finished runs that are still there, rung by rung from the bottom up."""
    order = [rung.slug for rung in EVERY]
    _, lines = read_study(path)
    done = sorted((order.index(str(line["rung"])), int(line["seed"])) for line in lines if line.get("rung") in order)
    logs = [path / f"{order[rung]}__s{seed}.stall" for rung, seed in done]
    return [log for log in logs if log.exists()]


def _read_header(path: Path) -> dict[str, Any] | None:
    place = path / HEADER
    try:
        header = json.loads(place.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        return None
    except OSError as error:
        raise _os_error(error, path) from error
    except ValueError:
        header = None
    if (
        not isinstance(header, dict)
        or header.get("stallbook_study") != 1
        or not isinstance(header.get("settings"), dict)
    ):
        raise StallbookError("bad-study", "not the header of a study (version 1)", "choose another folder", str(place))
    return header


def _read_results(path: Path) -> tuple[list[dict[str, Any]], bool]:
    """The results, a cell's last line winning, and whether the file ends in a torn line."""
    place = path / RESULTS
    try:
        rows = place.read_bytes().split(b"\n")
    except FileNotFoundError:
        return [], False
    except OSError as error:
        raise _os_error(error, path) from error
    torn = bool(rows.pop())  # what follows the last newline
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for number, row in enumerate(rows, 1):
        try:
            line = json.loads(row)
            found[str(line["rung"]), int(line["seed"])] = line
            line["post"]["itl_ms"], line["full"]["itl_ms"]
        except (ValueError, KeyError, TypeError):
            where = f"{place}:{number}"
            raise StallbookError(
                "bad-results", "not a result", "remove the line: its run is then redone", where
            ) from None
    return list(found.values()), torn


def _refuse_foreign(path: Path) -> None:
    """Refuse a folder with anything in it that no study wrote, or with logs that no study.json vouches for."""
    names = sorted(entry.name for entry in path.iterdir())
    strange = [name for name in names if not _OURS.fullmatch(name)]
    orphans = [name for name in names if name.endswith(".stall")] if HEADER not in names else []
    if strange or orphans:
        what = f"the folder holds something that is no part of a study ({(strange or orphans)[0]})"
        raise StallbookError("foreign-folder", what, "give --out a new or empty folder", str(path))


def _remove(entry: Path) -> None:
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry)
    else:
        entry.unlink(missing_ok=True)


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    if fcntl is None:
        yield
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            what = "another ladder is running in this folder"
            raise StallbookError("busy", what, "wait for it, or give --out another folder", str(path)) from None
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def _as_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _os_error(error, path) from error


def _os_error(error: OSError, path: Path) -> StallbookError:
    what = f"cannot use the folder ({(error.strerror or str(error)).lower()})"
    return StallbookError(
        "unwritable", what, "give --out a folder on a disk that can be written", str(error.filename or path)
    )
