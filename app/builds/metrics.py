"""What is counted, in one registry of this service. Labels are few and known: never an id, a model or a digest.

Counters count what this process did; with several, add them up. Gauges of the shared database are the same everywhere.
"""

import asyncio
from collections.abc import Callable
from math import nan
from time import monotonic
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import choose_encoder

import app
from app.db import builds, engines, models
from app.db.builds import Moved
from app.db.session import Database
from app.errors import Busy, StoreUnusable

BUILD_SECONDS = (0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200)
STOP_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2, 5, 6, 10, 30)
LAG_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)
LAG_EVERY = 0.5  # seconds between two looks at how late the event loop is
METHODS = frozenset({"GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS", "PATCH"})


class Metrics:
    """Counts. Every method is safe from any thread."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._gauges: list[Callable[[], None]] = []
        self._version = Gauge("trtforge_service_info", "Version of the service.", ["version"], registry=registry)
        self._version.labels(app.__version__).set(1)
        self._ended = Counter(
            "trtforge_builds",
            "Builds that ended here, by outcome and failure code.",
            ["outcome", "code"],
            registry=registry,
        )
        self._requeued = Counter("trtforge_builds_requeued", "Builds that went back to the queue.", registry=registry)
        self._stages = Histogram(
            "trtforge_build_stage_seconds",
            "Seconds of each stage, of builds that succeeded here.",
            ["stage"],
            registry=registry,
            buckets=BUILD_SECONDS,
        )
        self._stops = Histogram(
            "trtforge_build_stop_seconds",
            "Seconds from asking a running build to stop to its end, by what ended it.",
            ["ended_by"],
            registry=registry,
            buckets=STOP_SECONDS,
        )
        self._answers = Counter(
            "trtforge_http_requests",
            "Answers, by route and HTTP code; 0 when the client was gone before there was one.",
            ["method", "route", "code"],
            registry=registry,
        )
        self._uploaded = Counter(
            "trtforge_upload_bytes", "Bytes of models and files that were taken in.", registry=registry
        )
        self._lag = Histogram(
            "trtforge_event_loop_lag_seconds",
            "How late the event loop came back to a waiting task.",
            registry=registry,
            buckets=LAG_SECONDS,
        )

    # ---- counting

    def moved(self, change: Any) -> None:
        """Count a build whose new state is in the database."""
        if not isinstance(change, Moved):
            return
        if change.to == "queued":
            self._requeued.inc()
        elif change.to != "running":
            self._ended.labels(change.to, change.failure["code"] if change.failure else "").inc()
            if change.ended_by and change.stop_seconds is not None:
                self._stops.labels(change.ended_by).observe(change.stop_seconds)

    def built(self, stages: dict[str, float]) -> None:
        """Count a build's seconds by stage."""
        for stage, seconds in stages.items():
            self._stages.labels(stage).observe(seconds)

    def answered(self, method: str, route: str, code: int) -> None:
        """`route` is the template, not the address that was asked for."""
        self._answers.labels(method if method in METHODS else "other", route, str(code)).inc()

    def uploaded(self, size: int) -> None:
        self._uploaded.inc(size)

    async def watch_loop(self) -> None:
        """Look for ever how late the event loop is."""
        while True:
            before = monotonic()
            await asyncio.sleep(LAG_EVERY)
            self._lag.observe(max(0.0, monotonic() - before - LAG_EVERY))

    # ---- looking

    def gauge(self, name: str, text: str, look: Callable[[], float]) -> None:
        """Ask `look` at every scrape; a disk that does not answer is NaN, and the rest of the page stays."""
        made = Gauge(name, text, registry=self._registry)

        def ask() -> None:
            try:
                made.set(look())
            except StoreUnusable:
                made.set(nan)

        self._gauges.append(ask)

    def gauges_of(self, database: Database) -> None:
        """Ask the database at every scrape; what it does not answer is NaN, and the rest of the page stays."""
        queued = Gauge("trtforge_builds_queued", "Builds that wait for a worker.", registry=self._registry)
        stored = Gauge("trtforge_store_bytes", "Bytes that are kept, by kind.", ["kind"], registry=self._registry)

        def look() -> None:
            values = (nan, nan, nan)
            try:
                with database.read() as tx:
                    values = (builds.queued(tx), models.total_bytes(tx), engines.total_bytes(tx))
            except Busy:
                pass
            for gauge, value in zip((queued, stored.labels("models"), stored.labels("plans")), values, strict=True):
                gauge.set(value)

        self._gauges.append(look)

    def page(self, accept: str) -> tuple[bytes, str]:
        """Return everything in the format that `accept` asks for, and its content type. Blocks."""
        for look in self._gauges:
            look()
        encode, media = choose_encoder(accept)
        return encode(self._registry), media
