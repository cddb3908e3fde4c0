"""What to look at where a check fails: a sentence or two for each, printed beneath it."""

from __future__ import annotations

from typing import Final

__all__ = ["remedy"]

_RESIDUAL: Final = (
    "Time of a step that is in no segment, or time between steps: `enter` a segment for each phase, and begin a step "
    "where the one before it ended, `begin(t=...)`. `stallbook gaps` of the log shows which gaps have it."
)
_EXACT: Final = (
    "No call of an adapter should bring this about. It is a fault of stallbook: please report it, with the log."
)
_BY_NAME: Final = {
    "a log": (
        "Started with a log, the engine has to write one where STALLBOOK names it: is `register` called before the "
        "engine's module is imported, in the engine's own process?"
    ),
    "every request is answered": "The engine or the harness. Does it hold without an adapter (the last of `hindered`)?",
    "preemptions": (
        "Fewer recorded: a request loses its cache where no hook is, or comes back by `admit` where it should by "
        "`readmit`. More: one loss is told twice. None of the engine's own: more requests at once, longer ones, or a "
        "smaller cache."
    ),
    "tokens": (
        "Fewer recorded: at `emit` a request had not joined the batch yet, or had finished already (`emit` belongs "
        "where the forward pass returns). More: it joined before the last chunk of its prompt (the others: `member`), "
        "or stayed in the batch through a step without it (`part`)."
    ),
    "requests": "Fewer recorded: some come in where no hook is. More: `arrive` is called twice, or for a warm-up.",
    "prompt tokens": "`arrive` takes the prompt's length as asked, whatever of it is computed when, or again.",
    "gaps": f"No gaps at all: nothing was emitted between a `begin` and its `end`. Else: {_EXACT}",
    "residual of all gaps": _RESIDUAL,
    "residual of the tail": _RESIDUAL,
    "the recorder's own account": (
        "Hook what is called once a step and not once a request; `stallbook.adapters.later` and `stamps` are for what "
        "still costs too much. Very short steps show it most."
    ),
    "nothing lost": (
        "Dropped: a step was begun while one was open. Refused: a call contradicts an earlier one, for example with a "
        "handle that has finished. A hook that failed has lost what it should have recorded. The log's reader: "
        "records contradict each other, or one is missing (stray readmits: an eviction, endless evictions: a "
        "readmission); docs/format.md tells of the rest."
    ),
    "the suite itself": "Raised by the harness, or as the engine did not start. `--folder` keeps what it printed.",
}
_SILENT: Final = (
    "Nothing may be recorded, and nothing said: `settle()` says whether a log is wanted, `hooks.on` whether it may be."
)
_BY_PART: Final = {
    "killed": (
        "No gaps: nothing was in the log yet. A step is in the file once its `end` returns. Late: what hooks keep back "
        "has to be written at the latest half a second after, and before the engine rests (`later.flush`)."
    ),
    "hindered": (
        "The engine answers as ever, and stderr says what is wrong, in 1 to 19 lines with `stallbook:`. Is the "
        "recorder made once in a process, and what it raises caught (`hooks.call`)?"
    ),
}


def remedy(part: str, name: str) -> str:
    """For a check of that part of the suite; "" where nothing better than its figures is known."""
    if name in ("the kill switch", "no adapter"):
        return _SILENT
    if name == "first tokens" or name.startswith("gaps at the "):
        return _EXACT
    return _BY_NAME.get(name) or _BY_PART.get(part, "")
