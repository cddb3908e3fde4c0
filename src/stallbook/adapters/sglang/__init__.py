"""SGLang, unmodified: hooks in its tokenizer managers, schedulers and detokenizers, found by feature.

`register` is the entry point of SGLang's plugin group `sglang.srt.plugins`, which every process of a server loads. It
does nothing unless the variable `STALLBOOK` names a log, and imports nothing of SGLang: it waits until SGLang does.
"""

from __future__ import annotations

from stallbook.adapters.plugin import Plugin

__all__ = ["register"]

_MANAGERS = "sglang.srt.managers."
_PLUGIN = Plugin(
    "sglang",
    ("sglang",),
    {
        _MANAGERS + "scheduler": "stallbook.adapters.sglang.scheduler",
        _MANAGERS + "tokenizer_manager": "stallbook.adapters.sglang.frontend",
        _MANAGERS + "detokenizer_manager": "stallbook.adapters.sglang.detokenizer",
    },
)
register = _PLUGIN.register
