"""Measure the service beside the floor or the usual way: `python -m benchmarks` (or `make bench`).

Figures of one line are taken in the same run, in rounds that alternate, so that a busy machine slows both. A missed
goal is said, not punished: the exit code is 0 unless a measurement broke.
"""

import argparse
import json
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

from rich.console import Console

from benchmarks import MEASUREMENTS
from benchmarks.report import Line, machine, table
from benchmarks.scope import Scope

Measurements = Mapping[str, Callable[[], Callable[[Scope], list[Line]]]]


def main(words: Sequence[str] | None = None, measurements: Measurements = MEASUREMENTS) -> int:
    asked = _arguments(words, measurements)
    where, lines, broken = machine(), [], []
    _say(", ".join(f"{name} {value}" for name, value in where.items()))
    for name, measure in measurements.items():
        if asked.only and name not in asked.only:
            continue
        began = monotonic()
        try:
            lines += (found := _measured(measure(), asked.quick))
            for line in found:
                _say(f"  {line.what}: {line.ours} {line.unit}, {line.beside} {line.theirs or ''}")
        except Exception:
            broken.append(name)
            traceback.print_exc()
        _say(f"{name}: {monotonic() - began:.0f} s")
    _show(lines)
    if asked.json:
        asked.json.write_text(json.dumps({**where, "lines": [line.as_json() for line in lines]}, indent=2) + "\n")
    if broken:
        _say(f"Broken: {', '.join(broken)}")
    return 1 if broken else 0


def _arguments(words: Sequence[str] | None, measurements: Measurements) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", choices=sorted(measurements), help="this one; may be repeated")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: a look, not a figure to quote")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything there too")
    return parser.parse_args(words)


def _measured(measure: Callable[[Scope], list[Line]], quick: bool) -> list[Line]:
    with TemporaryDirectory(prefix="trtforge-bench-", ignore_cleanup_errors=True) as folder:
        return measure(Scope(Path(folder), quick))


def _show(lines: Sequence[Line]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table(lines))
    for line in lines:
        console.print(f"{line.what}: {line.how}", soft_wrap=True, highlight=False)
    missed = [line.what for line in lines if line.met is False]
    if not lines:
        return
    console.print(f"Goals missed: {'; '.join(missed)}" if missed else "Every goal that was measured is met.")


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the services of a stopped run end too
    sys.exit(main())
