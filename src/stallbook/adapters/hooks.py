"""Wrapping an engine's functions: found by feature, failing open, and told in the log.

A wrapper calls the original exactly once and passes its result and its exceptions through untouched. What goes wrong in
a hook is counted; after ten times no hook does anything any more.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from stallbook.record.base import OFF_VARIABLE

__all__ = ["Hooks"]

_ERRORS: Final = 10
_MARK: Final = "_stallbook_hook"

Make = Callable[[Callable[..., Any]], Callable[..., Any]]
Then = Callable[..., object]


class Hooks:
    """The hooks of this process: which were found, and whether they still work.

    on: False once the kill switch is set or too much went wrong; every wrapper looks at it first.
    tell: notes in the log that the hooks were switched off, and why.
    """

    __slots__ = ("errors", "found", "last", "on", "tell")

    def __init__(self) -> None:
        self.on = os.environ.get(OFF_VARIABLE) != "0"
        self.errors = 0
        self.last = ""
        self.tell: Callable[[str, object], object] | None = None
        self.found: dict[str, bool] = {}

    def wrap(self, owner: Any, name: str, make: Make, label: str = "") -> bool:
        """Put `make(original)` in the place of `owner.name`, a class's or an object's. False where there is none."""
        label = label or f"{getattr(owner, '__name__', type(owner).__name__)}.{name}"
        self.found.setdefault(label, False)
        try:
            original = getattr(owner, name, None)
            if not callable(original):
                return False
            if not hasattr(original, _MARK):
                static = isinstance(vars(owner).get(name), staticmethod) if isinstance(owner, type) else False
                wrapper = make(original)
                setattr(wrapper, _MARK, True)
                setattr(owner, name, staticmethod(wrapper) if static else wrapper)
            self.found[label] = True
        except Exception:
            self.failed()
            return False
        return True

    def around(self, owner: Any, name: str, before: Then | None = None, after: Then | None = None) -> bool:
        """Call `before(*args)` and `after(result, *args)` around `owner.name`, with its arguments. False as by `wrap`.

        For hooks whose cost does not matter much: each call costs some microseconds.
        """

        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(original)
            def hooked(*args: Any, **more: Any) -> Any:
                self.call(before, *args, **more)
                result = original(*args, **more)
                self.call(after, result, *args, **more)
                return result

            return hooked

        return self.wrap(owner, name, make)

    def call(self, then: Then | None, *args: Any, **more: Any) -> None:
        """Call it, unless the hooks are off; what it raises the engine does not see."""
        if then is not None and self.on:
            try:
                then(*args, **more)
            except Exception:
                self.failed()

    def failed(self) -> None:
        """An error inside a hook: the engine must not see it."""
        self.errors += 1
        with contextlib.suppress(Exception):
            self.last = _where()
            if self.errors == 1:
                print(f"stallbook: a hook failed, the engine goes on: {self.last}", file=sys.stderr)
            if self.errors == _ERRORS:
                self.on = False
                print(f"stallbook: hooks switched off after {_ERRORS} errors: {self.last}", file=sys.stderr)
                if self.tell is not None:
                    self.tell("hooks_off", self.last)

    def has(self, label: str) -> bool:
        """Whether a hook was found."""
        return self.found.get(label, False)


def _where() -> str:
    """The error that is being handled, and the line of ours that it came from."""
    kind, error, trace = sys.exc_info()
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace is not None else ""
    return f"{kind.__name__ if kind else ''}: {error} ({place})"[:300]
