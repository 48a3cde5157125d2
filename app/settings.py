"""Every setting: default, unit and help in one place. The README's table is printed from here."""

import os
import tempfile
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from app.errors import NotReady

GIB = 1 << 30
DAY = 86400.0


def _half_the_cpus() -> int:
    """The builder keeps one core busy; the rest is for the API and for reading and hashing."""
    return max(1, len(os.sched_getaffinity(0)) // 2)


def _host_local() -> Path:
    return Path(tempfile.gettempdir()) / f"trtforge-{os.getuid()}" / "locks"


class Settings(BaseSettings):
    """Read from the environment with the prefix `TRTFORGE_`; `TRTFORGE_X_FILE` names a file that holds the value of X."""

    model_config = SettingsConfigDict(env_prefix="TRTFORGE_", frozen=True, extra="ignore")

    host: Annotated[str, Field(description="Address to listen on. Any but loopback needs an admin token.")] = (
        "127.0.0.1"
    )
    port: Annotated[int, Field(ge=0, le=65535, description="Port to listen on; 0 takes a free one.")] = 8080
    data_dir: Annotated[Path, Field(description="Folder of the store and of the SQLite database.")] = Path("data")
    lock_dir: Annotated[
        Path,
        Field(description="Folder of the device locks, local to this host; under the temporary folder when left out."),
    ] = Field(default_factory=_host_local)
    database_url: Annotated[
        SecretStr | None,
        Field(description="`postgresql://…` or `sqlite:///…`; SQLite in the data folder when left out."),
    ] = None
    admin_token: Annotated[SecretStr | None, Field(description="Bearer token with every right.")] = None
    accel_prefix: Annotated[
        str | None,
        Field(
            pattern="^/.*/$",
            description="Internal address of the plans in an nginx in front, which then sends them (X-Accel-Redirect).",
        ),
    ] = None
    prebuild: Annotated[
        Path | None, Field(description="List of names (YAML) that must be ready before the service is.")
    ] = None
    plugins: Annotated[
        Path | None, Field(description="List (YAML) of the plugin libraries that builds may use, each by its digest.")
    ] = None
    signing_key: Annotated[
        SecretStr | None,
        Field(description="Private Ed25519 key (PEM) that signs engines; `trtforge key create` makes one."),
    ] = None
    trusted_keys: Annotated[
        str | None,
        Field(description="Public keys (PEM, or a file of them) whose engines may be imported, beside our own."),
    ] = None
    allow_unsigned_import: Annotated[
        bool, Field(description="Let an import ask for engines that no trusted key signed. Plans are code.")
    ] = False
    builder: Annotated[
        str,
        Field(
            pattern="^(auto|tensorrt_rtx|tensorrt)$",
            description="Builder to use; `auto`: `tensorrt` where it is installed with a GPU for it, else `tensorrt_rtx`.",
        ),
    ] = "auto"
    device: Annotated[
        str,
        Field(
            pattern="^(auto|cpu|gpu)$",
            description="What builds run on: `gpu`, one at a time on each; `cpu`; `auto`: what the builder needs.",
        ),
    ] = "auto"
    require_idle_gpu: Annotated[
        str,
        Field(
            pattern="^(no|wait|refuse)$",
            description="What a build does while other processes compute on its GPU: `no` (it is built), `wait`, `refuse`.",
        ),
    ] = "no"
    timing_cache: Annotated[
        str,
        Field(
            pattern="^(update|pinned|off)$",
            description="What GPU builds do with timings of kernels: use and add, use only these (to build the same again), or nothing.",
        ),
    ] = "update"
    timing_cache_dir: Annotated[
        Path | None, Field(description="Folder of the timing caches; in the data folder when left out.")
    ] = None
    load_engines: Annotated[
        str,
        Field(
            pattern="^(off|try|require)$",
            description="Whether a worker on a GPU deserializes what it has built for it: `off`; `try`, where a failure is a warning; `require`.",
        ),
    ] = "try"
    load_timeout_s: Annotated[
        float, Field(gt=0, description="Seconds that deserializing and measuring one engine may take.")
    ] = 300.0
    measure_contexts: Annotated[
        int,
        Field(
            ge=0,
            le=16,
            description="Most execution contexts that a deserialized engine is measured with at once (1, 2, 4, …), each on a stream of its own; 0: it is not measured.",
        ),
    ] = 0
    measure_s: Annotated[float, Field(gt=0, le=20, description="Seconds of each measurement.")] = 1.0
    slots: Annotated[
        int,
        Field(
            ge=1, le=64, description="Builds at once on the processors; half of them when left out. A GPU takes one."
        ),
    ] = Field(default_factory=_half_the_cpus)
    cancel_grace_s: Annotated[
        float, Field(gt=0, description="Seconds between asking a builder to stop and killing it.")
    ] = 5.0
    heartbeat_s: Annotated[float, Field(gt=0, description="Seconds between heartbeats on a stream.")] = 5.0
    stalled_after_s: Annotated[
        float, Field(gt=0, description="Seconds without a callback or computing before a build counts as stalled.")
    ] = 30.0
    lease_s: Annotated[float, Field(ge=3, description="Seconds after which a silent worker's build is taken back.")] = (
        15.0
    )
    drain_s: Annotated[float, Field(ge=0, description="Seconds that running builds get to end after SIGTERM.")] = 5.0
    inspect_timeout_s: Annotated[float, Field(gt=0, description="Seconds the inspection of one model may take.")] = 60.0
    probe_timeout_s: Annotated[
        float, Field(gt=0, description="Seconds the builder may take to report itself at start.")
    ] = 60.0
    max_model_bytes: Annotated[int, Field(gt=0, description="Largest model upload, in bytes.")] = 2 * GIB
    max_file_bytes: Annotated[int, Field(gt=0, description="Largest file of weights beside a model, in bytes.")] = (
        64 * GIB
    )
    max_model_files: Annotated[int, Field(gt=0, description="Most files of one model.")] = 1000
    max_body_bytes: Annotated[int, Field(gt=0, description="Largest JSON body, in bytes.")] = 1 << 20
    max_log_bytes: Annotated[int, Field(gt=0, description="Largest native log kept per build, in bytes.")] = 1 << 20
    min_free_bytes: Annotated[int, Field(ge=0, description="Free disk below which uploads and builds are refused.")] = (
        GIB // 4
    )
    max_queue: Annotated[int, Field(gt=0, description="Queued builds at once; what adds none is still answered.")] = (
        1000
    )
    max_requests_per_token: Annotated[
        int, Field(gt=0, description="Requests of one token that wait at once; without tokens there is no such limit.")
    ] = 256
    max_store_bytes: Annotated[
        int | None,
        Field(
            gt=0,
            description="Most bytes of plans and models; then what was fetched least recently goes. No limit when left out.",
        ),
    ] = None
    keep_engines: Annotated[
        int | None, Field(gt=0, description="Newest engines kept per model and target; all when left out.")
    ] = None
    engine_max_age_s: Annotated[
        float | None,
        Field(gt=0, description="Seconds since an engine was made or last fetched until it goes; never when left out."),
    ] = None
    model_max_age_s: Annotated[
        float | None,
        Field(
            gt=0,
            description="Seconds since a model that nothing refers to was used until it goes; never when left out.",
        ),
    ] = None
    file_max_age_s: Annotated[
        float, Field(ge=3600, description="Seconds until an uploaded file goes that became part of no model.")
    ] = 7 * DAY
    log_max_age_s: Annotated[
        float,
        Field(gt=0, description="Seconds since a build ended until its log and events go, all but the last event."),
    ] = 30 * DAY
    build_max_age_s: Annotated[
        float, Field(ge=DAY, description="Seconds since they ended until builds and requests are forgotten.")
    ] = 180 * DAY
    gc_interval_s: Annotated[
        float, Field(ge=0, description="Seconds between two looks for what may go; 0: only when asked.")
    ] = 3600.0
    max_waiters: Annotated[int, Field(gt=0, description="Open waits and streams at once.")] = 4096
    log_level: Annotated[
        str, Field(pattern="^(debug|info|warning|error)$", description="Least severe line in the log.")
    ] = "info"

    @model_validator(mode="before")
    @classmethod
    def _secrets_from_files(cls, values: dict[str, Any]) -> dict[str, Any]:
        for name in ("database_url", "admin_token", "signing_key"):
            path = os.environ.get(f"TRTFORGE_{name.upper()}_FILE")
            if path and values.get(name) is None:
                values[name] = Path(path).read_text().strip()
        return values

    @field_validator("admin_token")
    @classmethod
    def _long_enough(cls, token: SecretStr | None) -> SecretStr | None:
        if token is not None and len(token.get_secret_value()) < 16:
            raise ValueError("needs at least 16 characters; try `openssl rand -hex 32`")
        return token

    @property
    def url(self) -> str:
        """URL of the database; SQLite in the data folder by default."""
        if self.database_url:
            return self.database_url.get_secret_value()
        return f"sqlite:///{self.data_dir.resolve() / 'trtforge.db'}"

    @property
    def timing_caches(self) -> Path:
        return (self.timing_cache_dir or self.data_dir / "timing_caches").resolve()

    def check(self) -> None:
        """Refuse combinations that would be unsafe. Raises `NotReady` with the fix."""
        if self.admin_token is None and not _is_loopback(self.host):
            raise NotReady(
                f"TRTFORGE_HOST={self.host} is reachable by others and TRTFORGE_ADMIN_TOKEN is not set. "
                "Set a token (openssl rand -hex 32) or listen on 127.0.0.1."
            )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
