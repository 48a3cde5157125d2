"""Show a build while it runs: a live tree on a terminal, plain lines in a pipe, JSON lines for programs."""

from collections.abc import Iterator
from datetime import UTC, datetime
from time import monotonic
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from trtforge.cli.lines import WAITING_FOR, line, remaining
from trtforge.cli.text import plain, seconds, size
from trtforge.contract.builds import Activity, Estimate, Progress
from trtforge.contract.events import (
    CancelRequested,
    Event,
    Heartbeat,
    Log,
    PhaseFinished,
    PhaseProgress,
    PhaseStarted,
    Snapshot,
    Stalled,
)
from trtforge.contract.progress import OpenPhase, Picture, fold

_LINES_BELOW = 4  # of the terminal's height, kept free


class Screen:
    """Takes events as they come; `picture` is what they add up to."""

    def __init__(self) -> None:
        self.picture = Picture()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the terminal as it was."""

    def show(self, event: Event) -> None:
        self.picture = fold(self.picture, event, datetime.now(UTC))


def screen(console: Console, build_id: str, as_json: bool) -> Screen:
    if as_json:
        return Ndjson()
    return Tree(console, build_id) if console.is_terminal else Lines(console)


class Ndjson(Screen):
    """One event a line, as on the wire."""

    def show(self, event: Event) -> None:
        super().show(event)
        print(event.model_dump_json(), flush=True)


class Lines(Screen):
    """One stored event a line, and the heartbeats between them."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def show(self, event: Event) -> None:
        words = line(event, self.picture)
        if not isinstance(event, Snapshot):  # the replay tells all; the names of phases that are over are only there
            super().show(event)
        if words:
            print(words, flush=True, file=self._console.file)


class Tree(Screen):
    """The build and its live phases, redrawn in place; warnings of the builder scroll above."""

    def __init__(self, console: Console, build_id: str) -> None:
        super().__init__()
        self._console, self._build_id = console, build_id
        self._pulse = Pulse()
        self._stopping = False
        self._spinner = Spinner("dots")

    def __enter__(self) -> Self:
        self._live = Live(console=self._console, get_renderable=self._draw, refresh_per_second=8, transient=True)
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, event: Event) -> None:
        if isinstance(event, Log):
            style = "red" if event.level == "error" else "yellow"
            self._console.print(Text(f"{event.level}: {plain(event.text)}", style=style))
        self._stopping = self._stopping or isinstance(event, CancelRequested)
        self._pulse.feel(event)
        super().show(event)

    def _draw(self) -> RenderableType:
        room = max(1, self._console.height - _LINES_BELOW)
        phases = list(nested(self.picture))
        rows: list[RenderableType] = [self._headline(), _phase_table(phases[:room], datetime.now(UTC))]
        if len(phases) > room:
            rows.append(Text(f"   … and {len(phases) - room} more", style="dim"))
        return Group(*rows)

    def _headline(self) -> RenderableType:
        picture, pulse = self.picture, self._pulse
        words = [f"build {plain(self._build_id)}", "stopping" if self._stopping else picture.state]
        if picture.state == "queued" and picture.waiting_for:
            words.append(WAITING_FOR[picture.waiting_for])
        if picture.state == "running":
            words += [picture.stage or "", *pulse.words()]
        grid = Table.grid(padding=(0, 1))
        grid.add_row(self._spinner, Text(" · ".join(filter(None, words)), style="bold"))
        return grid


class Pulse:
    """Life signs of the builder: what the last heartbeat said, and how long ago."""

    def __init__(self) -> None:
        self._elapsed_s = self._silent_s = 0.0
        self._heard = self._spoke = monotonic()
        self._activity: Activity | None = None
        self._cpu_s: float | None = None
        self._rss_bytes: int | None = None
        self._estimate: Estimate | None = None
        self._stalled = False

    def feel(self, event: Event) -> None:
        """Take in any event; those that are no sign of life change nothing."""
        if isinstance(event, Heartbeat):
            self._take(event)
        elif isinstance(event, Snapshot) and event.build.progress:
            self._take(event.build.progress)
        elif isinstance(event, Stalled):  # said again with every heartbeat while it lasts
            self._stalled = True
        elif isinstance(event, PhaseStarted | PhaseProgress | PhaseFinished):
            self._silent_s, self._spoke, self._stalled = 0.0, monotonic(), False

    def _take(self, signs: Heartbeat | Progress) -> None:
        self._heard = self._spoke = monotonic()
        self._elapsed_s, self._silent_s = signs.elapsed_s, signs.silent_s
        self._activity, self._cpu_s, self._rss_bytes = signs.activity, signs.cpu_s, signs.rss_bytes
        self._estimate, self._stalled = signs.estimate, False

    def words(self) -> list[str]:
        now = monotonic()
        silent = f"silent {seconds(self._silent_s + now - self._spoke)}" + (
            f", {self._activity}" if self._activity else ""
        )
        told = [seconds(self._elapsed_s + now - self._heard), silent]
        if self._cpu_s is not None:
            told.append(f"cpu {seconds(self._cpu_s)}")
        if self._rss_bytes is not None:
            told.append(size(self._rss_bytes))
        if self._stalled:
            told.insert(0, "stalled")
        if self._estimate and self._estimate.remaining_s[1] > now - self._heard:
            told.append(remaining(self._estimate, now - self._heard))
        return told


def nested(picture: Picture) -> Iterator[tuple[int, OpenPhase]]:
    """Yield (depth, phase), children below their parents, in the order they started."""
    known = picture.phases

    def below(parent: int | None, depth: int) -> Iterator[tuple[int, OpenPhase]]:
        for phase in known.values():
            if (phase.parent if phase.parent in known else None) == parent:
                yield depth, phase
                yield from below(phase.id, depth + 1)

    return below(None, 0)


def _phase_table(phases: list[tuple[int, OpenPhase]], now: datetime) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, overflow="ellipsis")
    grid.add_column(width=24)
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True, justify="right")
    for depth, phase in phases:
        done = 0 if phase.step is None else phase.step + 1  # the builder counts from 0
        counted = f"{done} of {phase.steps}" if phase.steps else (f"{done} steps" if done else "")
        bar = ProgressBar(total=phase.steps, completed=min(done, phase.steps), width=24) if phase.steps else Text("")
        took = seconds(max(0.0, (now - phase.since).total_seconds()))
        grid.add_row(Text(f"{'  ' * depth}  └ {plain(phase.name)}"), bar, Text(counted), Text(took, style="dim"))
    return grid
