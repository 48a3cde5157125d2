"""How good estimates are: record real builds through the service, replay each against those that ended before it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from app.domain.estimate import History, Mark, Past, estimate, path_of
from benchmarks.report import Line, Spread
from benchmarks.scope import Scope
from benchmarks.service import Service, light_model
from trtforge.client import Client
from trtforge.contract.builds import Estimate, Submit
from trtforge.contract.events import Event, PhaseStarted, StageEntered, Started, Stored, Succeeded
from trtforge.contract.spec import BuildSpec

MODELS = ("shufflenet", "resnet50", "inception_v2")
LEARNED = 3  # builds of a model before its estimates are judged
RECENT = 10  # as the service looks back
MOMENTS = (0.25, 0.5, 0.75)  # of the true duration
INSIDE, WIDE = 80.0, 2.0  # the goals: percent inside the bounds at least, high over low at most
ROUND_BYTES = 1 << 20  # each round has that much more workspace, hence a key of its own and the same work


@dataclass(frozen=True)
class Recorded:
    """One build: its seconds, and when each stage and phase path first began, from the start."""

    total_s: float
    began: dict[str, float]

    def past(self) -> Past:
        return Past(self.total_s, {path: self.total_s - at for path, at in self.began.items()})

    def estimate_at(self, elapsed: float, before: "Sequence[Recorded]") -> Estimate | None:
        """Return what the service would have said then, with that history."""
        seen = [Mark(path, elapsed - at) for path, at in self.began.items() if at <= elapsed]
        seen.sort(key=lambda mark: mark.ago)
        history = History([build.past() for build in before[-RECENT:]], "replayed")
        return estimate(history, elapsed, seen)


@dataclass(frozen=True)
class Judged:
    """One estimate against the truth, at one moment of one build. `error` is in percent of the build's duration."""

    moment: float
    inside: bool
    error: float


def measure(scope: Scope) -> list[Line]:
    recorded = _record(scope)
    judged = [one for builds in recorded.values() for one in _judge(builds)]
    ratios = [ratio for builds in recorded.values() for ratio in _ratios(builds)]
    inside = 100 * sum(one.inside for one in judged) / len(judged)
    took = ", ".join(f"{name} {Spread.of([b.total_s for b in builds])} s" for name, builds in recorded.items())
    how = f"{len(judged)} estimates of recorded builds ({took}), each by the builds of its model that ended before it."
    lines = [
        _line("truth inside the bounds", "%", [inside], f"at least {INSIDE:g} %", inside >= INSIDE, how),
        _line("high/low of the total at the start", "x", ratios, f"at most {WIDE:g}", _median(ratios) <= WIDE, how),
    ]
    for moment in MOMENTS:
        errors = [one.error for one in judged if one.moment == moment]
        said = f"middle of the bounds against the truth, in percent of the build's duration; {how}"
        lines.append(_line(f"error of the remaining time at {moment:.0%}", "%", errors, "", None, said))
    return lines


def _line(what: str, unit: str, values: Sequence[float], goal: str, met: bool | None, how: str) -> Line:
    history = f"history of {LEARNED} builds or more"
    return Line(what, unit, Spread.of(values), history, None, goal, met, how)


def _median(values: Sequence[float]) -> float:
    return Spread.of(values).median


# ---- record


def _record(scope: Scope) -> dict[str, list[Recorded]]:
    recorded: dict[str, list[Recorded]] = {name: [] for name in MODELS}
    with Service(scope.folder) as service, Client(service.url) as client:
        known = next(iter(client.targets().items))
        digests = {name: client.upload(light_model(name)).digest for name in MODELS}
        for number in range(scope.rounds(8, LEARNED + 1)):
            workspace = known.capabilities.defaults.workspace_bytes + number * ROUND_BYTES
            for name in MODELS:
                recorded[name].append(_built(client, digests[name], workspace))
    return recorded


def _built(client: Client, digest: str, workspace: int) -> Recorded:
    submitted = client.submit(Submit(model=digest, spec=BuildSpec(workspace_bytes=workspace)))
    if submitted.disposition != "created" or submitted.build is None:
        raise RuntimeError(f"disposition {submitted.disposition}")
    events = [event for event in client.events(submitted.build.id) if isinstance(event, Stored)]
    if not isinstance(events[-1], Succeeded):
        raise RuntimeError(f"the build ended with {type(events[-1]).__name__}")
    start = next(event.at for event in events if isinstance(event, Started))
    began: dict[str, float] = {}
    for path, at in _paths(events):
        began.setdefault(path, (at - start).total_seconds())
    return Recorded((events[-1].at - start).total_seconds(), began)


def _paths(events: Sequence[Event]) -> Iterator[tuple[str, datetime]]:
    """Yield each stage and phase by its path, as the service remembers them."""
    stage, above = "", dict[int, tuple[str, ...]]()
    for event in events:
        if isinstance(event, StageEntered):
            stage = event.stage
            if stage != "prepare":  # what comes before the builder speaks is no mark
                yield path_of(stage), event.at
        elif isinstance(event, PhaseStarted):
            parent = event.phase.parent
            names = (*(above.get(parent, ()) if parent is not None else ()), event.phase.name)
            above[event.phase.id] = names
            yield path_of(stage, *names), event.at


# ---- judge


def _judge(builds: Sequence[Recorded]) -> Iterator[Judged]:
    for number in range(LEARNED, len(builds)):
        for moment in MOMENTS:
            yield _judge_one(builds[number], builds[:number], moment)


def _judge_one(build: Recorded, before: Sequence[Recorded], moment: float) -> Judged:
    elapsed = build.total_s * moment
    left = build.total_s - elapsed
    said = build.estimate_at(elapsed, before)
    if said is None:  # it gave up too early: as wrong as saying nothing was left
        return Judged(moment, False, 100 * (1 - moment))
    low, high = said.remaining_s
    return Judged(moment, low <= left <= high, 100 * abs((low + high) / 2 - left) / build.total_s)


def _ratios(builds: Sequence[Recorded]) -> Iterator[float]:
    for number in range(LEARNED, len(builds)):
        if said := builds[number].estimate_at(0, builds[:number]):
            low, high = said.total_s
            yield high / low
