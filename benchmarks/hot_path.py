"""The hot path against its ceiling and against the naive way, in one run on one Postgres.

    python benchmarks/hot_path.py [--quick] [--json] [--preload 1000000 | --policies 100]

docs/performance.md says what is measured and how to read it. Exits with 1 if any call did not succeed, with 2 if the
machine lacks a tool.
"""

from __future__ import annotations

import os
import sys

# The folder of this file has a `queue` that is not Python's.
sys.path.pop(0)
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import argparse
import json
import tempfile
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.load import LoadFailed, Unfit
from benchmarks.plan import ECHO, NAIVE, PLACET, POLICIED, PRELOADED, Plan
from benchmarks.processes import StartFailed
from benchmarks.report import report_of, text_of
from placet_server.embedded.error import EmbeddedError


def main() -> int:
    arguments = _arguments()
    plan = plan_of(arguments)
    try:
        with tempfile.TemporaryDirectory(prefix="placet-benchmark-", dir=arguments.folder) as folder:
            # The account of Postgres reads through it.
            Path(folder).chmod(0o755)
            measured = Bench(plan, Path(folder)).run()
    except (Unfit, EmbeddedError) as error:
        print(error, file=sys.stderr)
        return 2
    except (StartFailed, LoadFailed) as error:
        print(error, file=sys.stderr)
        return 1
    report = report_of(plan, measured)
    print(json.dumps(report, indent=2) if arguments.json else text_of(report))
    return 0 if report["succeeded"] else 1


def plan_of(arguments: argparse.Namespace) -> Plan:
    kinds: tuple[str, ...] = (ECHO, PLACET, NAIVE)
    if arguments.preload:
        kinds = (ECHO, PLACET, PRELOADED)
    elif arguments.policies:
        kinds = (ECHO, PLACET, POLICIED)
    is_pair = bool(arguments.preload or arguments.policies)
    quick = arguments.quick
    return Plan(
        kinds=kinds,
        levels=tuple(arguments.calls or ((16, 64) if quick or is_pair else (1, 16, 64, 256))),
        process_counts=tuple(arguments.processes or ((1,) if quick or is_pair else (1, 2))),
        repetitions=arguments.repetitions,
        warmup_seconds=0.5 if quick else 1.0,
        measured_seconds=arguments.seconds or (1.0 if quick else 2.0),
        preload_count=arguments.preload,
        policy_count=arguments.policies,
        programs=arguments.programs,
        cross_check=not quick,
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    parser.add_argument("--quick", action="store_true", help="16 and 64 calls, one process, short windows")
    parser.add_argument(
        "--preload", type=int, default=0, metavar="N", help="an empty store against one with N actions"
    )
    parser.add_argument(
        "--policies",
        type=int,
        default=0,
        metavar="N",
        help="the built-in policies against N of a tenant's own",
    )
    parser.add_argument("--calls", type=int, nargs="+", help="calls in flight (default 1 16 64 256)")
    parser.add_argument("--processes", type=int, nargs="+", help="server processes (default 1 2)")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--seconds", type=float, help="measured time of each window (default 2)")
    parser.add_argument("--programs", default="auto", help="Postgres: auto, wheel, installed or a bin folder")
    parser.add_argument("--folder", help="where the data folder is made (default: the temporary folder)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
