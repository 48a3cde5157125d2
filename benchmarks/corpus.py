"""The ONNX project's own test models through the service and through the bare builder: `make corpus`.

`python -m benchmarks.corpus [--share 0.1 --seed 1] [--only WORD] [--results FILE]`. Every model is uploaded, preflighted and built
over HTTP, then given to the builder itself. Each answer is a line of the results: stopped and started again, it goes on
where it was. A whole run writes docs/corpus.md. The exit code is 1 where the two disagree or too much has no code of ours.
"""

import argparse
import json
import random
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from time import monotonic
from typing import Any

import httpx

from benchmarks.corpus_models import models
from benchmarks.corpus_served import served
from benchmarks.corpus_table import page, wrong
from benchmarks.scope import ROOT
from benchmarks.service import Service

PAGE = ROOT / "docs" / "corpus.md"
CRASHED = "does not build"  # a builder that crashes, or does not come to an end, has built nothing
BATCH, BARE_S = 50, 300  # models for one process of the bare builder, and its seconds for all of them
OPTIONS = ""  # name of the line with what every model is built with
Json = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.corpus", description=__doc__.splitlines()[0])
    parser.add_argument("--share", type=float, default=1.0, help="part of the models, drawn by the seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="models with this in their name; no page is written")
    parser.add_argument("--slots", type=int, default=2, help="builds at once")
    parser.add_argument("--results", type=Path, help="file of the answers, one a line; gone on with when it is there")
    asked = parser.parse_args()
    chosen = drawn(models(), asked.share, asked.seed, asked.only or "")
    with TemporaryDirectory(prefix="trtforge-corpus-") as folder:
        began = monotonic()
        results = run(chosen, Path(folder), asked.slots, asked.results)
        took = monotonic() - began
    found = [results[name] for name in chosen]
    text = page(found)
    print(text, f"{took:.0f} s", sep="\n")
    if asked.share == 1 and not asked.only:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(text)
    violated = wrong(found)
    print(*violated, sep="\n")
    return 1 if violated else 0


def drawn(all_: Iterable[tuple[str, bytes]], share: float, seed: int, word: str = "") -> dict[str, bytes]:
    """Return a share of the models, always the same for a seed."""
    named = {name: content for name, content in all_ if word in name}
    kept = set(random.Random(seed).sample(sorted(named), round(len(named) * share)))
    return {name: content for name, content in named.items() if name in kept}


def run(
    chosen: Mapping[str, bytes], folder: Path, slots: int, results: Path | None = None, thorough: bool = True
) -> dict[str, Json]:
    """Return by name what the service and the bare builder say of each model. `results`: kept there too.

    `thorough`: also build over HTTP what preflight has refused.
    """
    kept = Kept(results or folder / "results.jsonl")
    _serve({name: content for name, content in chosen.items() if name not in kept.found}, folder, slots, kept, thorough)
    unasked = [name for name in chosen if "bare" not in kept.found[name]]
    options = kept.found[OPTIONS]["options"]
    for name, answer in bare({name: chosen[name] for name in unasked}, kept.found, folder, options):
        kept.add(name, {**kept.found[name], **answer})
    return kept.found


class Kept:
    """Answers by name, each written as it comes; the last one of a name counts."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, Lock()
        lines = path.read_text().splitlines() if path.exists() else []
        self.found: dict[str, Json] = {one["name"]: one for one in map(json.loads, lines)}

    def add(self, name: str, answer: Json) -> None:
        with self._lock, self._path.open("a") as file:
            self.found[name] = {"name": name, **answer}
            file.write(json.dumps(self.found[name]) + "\n")


def _serve(chosen: Mapping[str, bytes], folder: Path, slots: int, kept: Kept, thorough: bool) -> None:
    if not chosen:
        return
    with (
        Service(folder, slots=str(slots), log_level="warning") as service,
        httpx.Client(base_url=service.url, timeout=120, verify=False) as http,
        ThreadPoolExecutor(slots * 2) as pool,
    ):

        def ask(name: str) -> None:
            began = monotonic()
            kept.add(name, served(http, chosen[name], thorough) | {"seconds": round(monotonic() - began, 2)})

        kept.add(OPTIONS, {"options": _defaults(http)})
        list(pool.map(ask, chosen))


def _defaults(http: httpx.Client) -> list[str]:
    """Return what the service builds with when nothing is said, as words for `corpus_bare`."""
    (known,) = http.get("/v1/targets").json()["items"]
    defaults = known["capabilities"]["defaults"]
    capabilities = ",".join(known["target"]["compute_capabilities"])
    return [str(defaults["optimization_level"]), str(defaults["workspace_bytes"]), capabilities]


def bare(
    chosen: Mapping[str, bytes], known: Mapping[str, Json], folder: Path, options: Sequence[str]
) -> Iterator[tuple[str, Json]]:
    """Yield what the builder says of each when it is called directly; after a crash a new process goes on."""
    waiting = []
    for number, (name, content) in enumerate(chosen.items()):
        path = folder / f"{number}.onnx"
        path.write_bytes(content)
        waiting.append({"name": name, "path": str(path), "profiles": known[name]["profiles"]})
    while waiting:
        batch, waiting = waiting[:BATCH], waiting[BATCH:]
        answers, ended = _answers(batch, options)
        for answer in answers:
            yield answer["name"], {"bare": answer["verdict"], "bare_says": answer["says"]}
        if left := batch[len(answers) :]:
            yield left[0]["name"], {"bare": CRASHED, "bare_says": ended}
            waiting = left[1:] + waiting


def _answers(waiting: list[Json], options: Sequence[str]) -> tuple[list[Json], str]:
    """Return the answers that a process gave before it ended, and how it ended."""
    command = [sys.executable, "-m", "benchmarks.corpus_bare", *options]
    asked = "".join(json.dumps(one) + "\n" for one in waiting)
    try:
        ran = subprocess.run(command, input=asked.encode(), capture_output=True, cwd=ROOT, timeout=BARE_S, check=False)
        said, ended = ran.stdout, f"ended with {ran.returncode}"
    except subprocess.TimeoutExpired as late:
        said, ended = late.stdout or b"", f"not done after {BARE_S} s"
    return [json.loads(line) for line in said.splitlines(keepends=True) if line.endswith(b"\n")], ended


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the service of a stopped run ends too
    sys.exit(main())
