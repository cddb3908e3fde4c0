"""The report page: bytes and seconds, of a log that is given and of a made one with millions of gaps.

python benchmarks/page.py out/demo-1.stall
python benchmarks/page.py --gaps 1e7
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path

from stallbook.log import open_run
from stallbook.partition import partition
from stallbook.report.detail import detail
from stallbook.report.html.page import page
from synthetic import synthetic_run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", nargs="?", type=Path)
    parser.add_argument("--gaps", type=float, default=1e7)
    args = parser.parse_args()
    start, cpu = time.perf_counter(), time.process_time()
    run = open_run(args.log) if args.log else synthetic_run(int(args.gaps))
    made, made_cpu = time.perf_counter(), time.process_time()
    found = detail(partition(run))
    drawn = page([found])
    end, end_cpu = time.perf_counter(), time.process_time()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{found.report.gaps:,} gaps, {drawn.count('<figure')} charts: {len(drawn.encode()) / 1e6:.2f} MB")
    print(f"read or made in {made - start:.1f} s (CPU {made_cpu - cpu:.1f} s)")
    print(f"partition, report and page in {end - made:.1f} s (CPU {end_cpu - made_cpu:.1f} s); peak {peak:,.0f} MB")


if __name__ == "__main__":
    main()
