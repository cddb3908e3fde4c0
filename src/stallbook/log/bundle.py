"""The native log: a folder `NAME.stall/` of a manifest and one spool a process. See docs/format.md."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stallbook.errors import StallbookError
from stallbook.log.bundle_write import write_bundle
from stallbook.log.draft import Draft
from stallbook.log.jsonl import BOUNDARIES
from stallbook.log.jsonl_events import printable, text
from stallbook.log.spool import read_spool
from stallbook.log.spool_join import Join
from stallbook.log.spool_records import plain_file
from stallbook.record import manifest
from stallbook.record.spool import spool_name
from stallbook.run import ExplicitBaseline

__all__ = ["read_bundle", "write_bundle"]

_FRONTEND = "api-"
"""How the spools of frontends begin."""
_FACTS = ("clock", "platform", "python", "pid", "os_counters", "pool_threads", "closed")


def read_bundle(path: Path) -> Draft:
    """Read a log, also one that is being written or whose writer was killed."""
    about = _manifest(path)
    owner = about["process"]
    draft = Draft(path=str(path), unit="step", forgiving=True)
    draft.engine, draft.boundary = printable(about["engine"]) if about["engine"] else "", about["boundary"]
    draft.records = frozenset(about["records"])
    draft.config, draft.facts = about["config"], {key: about[key] for key in _FACTS if key in about}
    if baseline := about["baseline"]:
        draft.baseline = ExplicitBaseline(*(baseline[k] for k in ("fixed_ns", "row_ns", "kv_token_ns")))
    draft.wall_ns, draft.preemptions = about.get("wall_ns", -1), about.get("preemptions", -1)
    draft.notes.update(about.get("notes", {}))
    own = path / spool_name(owner)
    if not own.is_file():
        what = f"the log has no {own.name}"
        raise StallbookError("no-spool", what, "the folder was altered; record again", str(path))
    join, others = Join(draft), [one for one in sorted(path.glob("*.spool")) if one != own]
    fronts = [one for one in others if one.stem.startswith(_FRONTEND)]
    for front in [*fronts, *_shared_frontends(path, about)]:
        read_spool(front, draft, printable(_process(front)), False, join)
    read_spool(own, draft, owner, True, join)
    for other in others:
        if other not in fronts:
            read_spool(other, draft, printable(_process(other)), False, join)
    join.graphs()
    draft.facts |= about["facts"]  # a converted log keeps what was known of the recording, not of the conversion
    return draft


def _shared_frontends(path: Path, about: dict[str, Any]) -> list[Path]:
    """The spools of frontends that serve several engines: they lie in the folder of the first."""
    folder = about["facts"].get("frontends")
    if not isinstance(folder, str) or Path(folder).name != folder:
        return []
    return sorted((path.parent / folder).glob(f"{_FRONTEND}*.spool"))


def _manifest(path: Path) -> dict[str, Any]:
    file = path / manifest.NAME
    try:
        about = json.loads(plain_file(file))
        version = about["stallbook_log"]
    except FileNotFoundError:
        what = f"no {manifest.NAME} in this folder"
        raise StallbookError("no-manifest", what, "give the folder of a log (NAME.stall)", str(path)) from None
    except OSError as error:
        raise StallbookError("unreadable", error.strerror or str(error), "check the file", str(file)) from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise StallbookError("foreign", "not a manifest of stallbook", "record again", str(file)) from None
    if type(version) is not int or version != manifest.VERSION:
        what = f"format {version!r:.40}, this version reads {manifest.VERSION}"
        raise StallbookError("version", what, "open it with the stallbook that wrote it", str(file))
    return _checked(about, file)


_SHAPE: dict[str, tuple[type | None, ...]] = {
    "engine": (str,), "boundary": (str,), "process": (str,), "records": (list,), "config": (dict,), "facts": (dict,),
    "baseline": (dict, type(None)),
}  # fmt: skip


def _whole(value: object) -> bool:
    return type(value) is int and -1 <= value < 2**61


def _names(*values: object) -> bool:
    try:
        for value in values:
            text("unnamed" if value == "" else value)
    except ValueError:
        return False
    return True


def _counts(notes: object) -> bool:
    return isinstance(notes, dict) and _names(*notes) and all(_whole(n) and n >= 0 for n in notes.values())


def _finite(baseline: object) -> bool:
    """No baseline, or three numbers of nanoseconds, as in the interchange format."""
    given = [baseline.get(k) for k in ("fixed_ns", "row_ns", "kv_token_ns")] if isinstance(baseline, dict) else []
    return not baseline or all(isinstance(n, (int, float)) and type(n) is not bool and abs(n) <= 2**61 for n in given)


_FITS: dict[str, Callable[[Any], bool]] = {
    "boundary": BOUNDARIES.__contains__, "records": lambda told: _names(*told), "baseline": _finite,
}  # fmt: skip


def _checked(about: dict[str, Any], file: Path) -> dict[str, Any]:
    """A manifest that says all that the reader needs."""
    bad = [key for key, kinds in _SHAPE.items() if not isinstance(about.get(key), tuple(k for k in kinds if k))]
    bad += [k for k in ("wall_ns", "preemptions") if not _whole(about.get(k, -1))]
    if not bad:
        bad = [key for key in ("boundary", "records", "baseline") if not _FITS[key](about[key])]
    if not _counts(about.get("notes", {})):
        bad = [*bad, "notes"]
    if bad:
        what = f"{bad[0]} is missing, of the wrong kind or out of range"
        raise StallbookError("foreign", what, "not a manifest of stallbook, or altered; record again", str(file))
    return about


def _process(spool: Path) -> str:
    """`worker-0.spool` is `worker:0`'s."""
    name, dash, number = spool.stem.rpartition("-")
    return f"{name}:{number}" if dash and number.isdigit() else spool.stem
