"""Checks and facts of the process that runs the demonstrator: BLAS threads, affinity, versions."""

from __future__ import annotations

import os
import platform
import sys
import time
from typing import Any, Final

import numpy as np

from stallbook.demo.ports import Clock
from stallbook.errors import StallbookError

__all__ = ["REAL_CLOCK", "blas_pools", "check_blas", "check_cpus", "describe"]

REAL_CLOCK: Final = Clock(time.perf_counter_ns, time.sleep)


def blas_pools() -> list[dict[str, Any]]:
    """The thread pools of the BLAS libraries in this process, as threadpoolctl sees them."""
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        raise StallbookError(
            "missing-extra", "the demonstrator needs `threadpoolctl`", "install it with: pip install 'stallbook[demo]'"
        ) from None
    np.ones((2, 2), np.float32) @ np.ones((2, 2), np.float32)  # a lazily loaded BLAS is loaded now
    keep = ("internal_api", "version", "threading_layer", "architecture", "num_threads")
    return [{key: pool.get(key) for key in keep} for pool in threadpool_info() if pool.get("user_api") == "blas"]


def check_blas(threads: int) -> list[dict[str, Any]]:
    """Refuse to measure with another number of BLAS threads than was asked for.

    A pool that starts on all cores makes each small product wait for its slowest thread, and the tail of every
    run with it; the environment variable that prevents it is read once, when NumPy is first imported.
    """
    pools = blas_pools()
    wrong = [pool for pool in pools if pool["num_threads"] != threads]
    if wrong:
        found = ", ".join(f"{pool['internal_api']} has {pool['num_threads']}" for pool in wrong)
        what = f"{threads} BLAS thread{'s were' if threads > 1 else ' was'} asked for, but {found}"
        remedy = "start runs with `stallbook demo`, or set OPENBLAS_NUM_THREADS before NumPy is imported"
        if threads > _cpus():
            remedy = f"give at most {_cpus()}, the CPUs of this machine; else " + remedy
        raise StallbookError("blas-threads", what, remedy)
    return pools


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_cpus(cpus: tuple[int, ...] | None) -> None:
    """Refuse CPUs that this process may not use."""
    if cpus is None:
        return
    if not hasattr(os, "sched_setaffinity"):
        raise StallbookError("bad-setting", "tokenizer_cpus cannot be set on this system", "leave it out")
    allowed = os.sched_getaffinity(0)
    if not set(cpus) <= allowed:
        raise StallbookError(
            "bad-setting",
            f"tokenizer_cpus are {list(cpus)}",
            f"choose among the CPUs {sorted(allowed)} of this machine",
        )


def describe() -> dict[str, Any]:
    """What a reader needs to judge a log by: versions and the machine."""
    return {
        "python": sys.version.split()[0],
        "numpy": np.__version__,
        "machine": platform.machine(),
        "cpus": _cpus(),
    }
