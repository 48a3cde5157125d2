"""All tables. A build's row numbers its events (`last_seq`) and counts its waiting requests."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    text,
)

from app.db.types import Json, Utc

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(column_0_label)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

models = Table(
    "models",
    metadata,
    Column("digest", String(71), primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("graph", String, nullable=False),
    Column("files", Json, nullable=False),
    Column("inspection", Json, nullable=False),
    Column("created_at", Utc, nullable=False),
)

targets = Table(
    "targets",
    metadata,
    Column("id", String, primary_key=True),
    Column("fingerprint", String(71), nullable=False, unique=True),  # digest of `target`
    Column("target", Json, nullable=False),
    Column("capabilities", Json, nullable=False),
    Column("last_seen", Utc, nullable=False),
)

workers = Table(
    "workers",
    metadata,
    Column("id", String, primary_key=True),
    Column("owner", String, nullable=False),  # of the process's staging folder, whose lock proves it alive
    Column("target_id", String, ForeignKey("targets.id"), nullable=False),
    Column("gpu", Json),  # what it builds on; null: processors
    Column("host", String, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("slots", Integer, nullable=False),
    Column("started_at", Utc, nullable=False),
    Column("last_seen", Utc, nullable=False),
)

builds = Table(
    "builds",
    metadata,
    Column("id", String, primary_key=True),
    Column("engine_key", String(71), nullable=False),
    Column("model", String(71), nullable=False),  # no foreign key: an ended build outlives its model
    Column("target_id", String, ForeignKey("targets.id"), nullable=False),
    Column("target", Json, nullable=False),  # exact: the known target with the compute capabilities asked for
    Column("spec_requested", Json, nullable=False),
    Column("spec_effective", Json, nullable=False),
    Column("state", String, nullable=False),
    Column("stage", String),
    Column("attempt", Integer, nullable=False),
    Column("losses", Integer, nullable=False),  # workers lost while they ran it
    Column("last_seq", Integer, nullable=False),
    Column("requests", Integer, nullable=False),  # that still wait
    Column("priority", Integer, nullable=False),
    Column("labels", Json, nullable=False),
    Column("waiting_for", String),
    Column("worker", String),
    Column("lease_until", Utc),
    Column("progress", Json),  # as of the last renewal of the lease
    Column(
        "stop", String
    ),  # cancel | run_timeout | queue_timeout | builder_stalled: what was asked, a flag and not a state
    Column("stop_at", Utc),
    Column("stop_by", String),
    Column("stop_reason", String),
    Column("ended_by", String),
    Column("stop_seconds", Float),
    Column("failure", Json),
    Column("plan_digest", String(71)),
    Column("plan_size", BigInteger),
    Column("rebuild", Json),  # of a build that only compares: engine_key, plan, and in the end identical and differs
    Column("follows", String, index=True),  # the failed build whose requests fell back to this one
    Column("created_at", Utc, nullable=False),
    Column("started_at", Utc),
    Column("finished_at", Utc),
    Column("trimmed_at", Utc),  # when its log and all but the last event went
    # One live build per key; one that is being stopped no longer counts, so a new submit starts anew.
    Index(
        "uq_builds_live_engine_key",
        "engine_key",
        unique=True,
        sqlite_where=text("state in ('queued', 'running') and stop is null"),
        postgresql_where=text("state in ('queued', 'running') and stop is null"),
    ),
    Index("ix_builds_newest", "created_at", "id"),
    Index("ix_builds_engine_key", "engine_key", "created_at"),
    Index("ix_builds_model", "model", "created_at"),
    Index("ix_builds_queue", "state", "target_id", "priority", "created_at"),
    Index("ix_builds_finished_at", "finished_at"),
    Index("ix_builds_trimmed_at", "trimmed_at", "finished_at"),
)

# The labels of builds once more, to find builds by; in the order that lists have.
build_labels = Table(
    "build_labels",
    metadata,
    Column("build_id", String, ForeignKey("builds.id", ondelete="CASCADE"), primary_key=True),
    Column("name", String, primary_key=True),
    Column("value", String, nullable=False),
    Column("created_at", Utc, nullable=False),
    Index("ix_build_labels_newest", "name", "value", "created_at", "build_id"),
)

build_events = Table(
    "build_events",
    metadata,
    Column("build_id", String, ForeignKey("builds.id", ondelete="CASCADE"), primary_key=True),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("type", String, nullable=False),
    Column("body", Text, nullable=False),  # the JSON that goes over the wire, encoded once
)

requests = Table(
    "requests",
    metadata,
    Column("id", String, primary_key=True),
    Column("caller", String, nullable=False),  # the token it came with
    Column("state", String, nullable=False),
    Column("disposition", String, nullable=False),
    Column("build_id", String, ForeignKey("builds.id", ondelete="SET NULL"), index=True),
    Column("builds", Json, nullable=False),  # ids in the order they were tried
    Column("options", Json, nullable=False),
    Column("step", Integer, nullable=False),  # of its fallbacks that were taken
    Column("deadline", Utc),  # of its queue or run timeout, whichever counts now
    Column("served_key", String(71)),
    Column("differs", Json),  # of the engine it was served, from what it first asked for
    Column("failure", Json),
    Column("reason", String),
    Column("created_at", Utc, nullable=False),
    Column("ended_at", Utc, index=True),
    Index("ix_requests_deadline", "state", "deadline"),
    Index("ix_requests_caller", "caller", "state"),
)

idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("caller", String, primary_key=True),
    Column("key", String, primary_key=True),
    Column("body_digest", String(71), nullable=False),
    Column("request_id", String, nullable=False),  # no foreign key: the key is taken before its request exists
    Column("created_at", Utc, nullable=False, index=True),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", String, primary_key=True),
    Column("name", String, nullable=False),
    Column("prefix", String, nullable=False, unique=True),  # how the secret begins: by it a token is found
    Column("digest", String(64), nullable=False),  # sha256 of the secret
    Column("scope", String, nullable=False),
    Column("created_at", Utc, nullable=False),
    Column("last_used_at", Utc),
    Column("expires_at", Utc),
    Column("revoked_at", Utc),
    Index("ix_tokens_newest", "created_at", "id"),
)

tickets = Table(
    "tickets",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("build_id", String, ForeignKey("builds.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("caller", String, nullable=False),  # who asked for it: it ends with their token
    Column("connect_by", Utc, nullable=False, index=True),
    Column("used_at", Utc),  # first; from then on it works until its build has ended
)

engines = Table(
    "engines",
    metadata,
    Column("engine_key", String(71), primary_key=True),
    Column("model", String(71), nullable=False),
    Column("builder", String, nullable=False),
    Column("gpu", String),
    Column("target", Json, nullable=False),
    Column("spec", Json, nullable=False),  # effective
    Column("plan_digest", String(71), nullable=False, index=True),
    Column("plan_size", BigInteger, nullable=False),
    Column("manifest", Text, nullable=False),  # JSON as it is served
    Column("created_at", Utc, nullable=False),
    Column("last_fetched_at", Utc),
    Column("pinned", Boolean, nullable=False),
    Index("ix_engines_newest", "created_at", "engine_key"),
    Index("ix_engines_model", "model", "created_at"),
    Index("ix_engines_gpu", "gpu", "created_at", "engine_key"),
    Index("ix_engines_builder", "builder", "created_at", "engine_key"),
)

names = Table(
    "names",
    metadata,
    Column("name", String, primary_key=True),
    Column("version", Integer, nullable=False),  # of the want that counts now; rises for ever, also over a removal
    Column("want", Json),  # null: removed
    Column("created_at", Utc, nullable=False),
    Column("updated_at", Utc, nullable=False),
)

name_versions = Table(
    "name_versions",
    metadata,
    Column("name", String, ForeignKey("names.name"), primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("want", Json),  # null: removed
    Column("by", String, nullable=False),
    Column("at", Utc, nullable=False),
)

build_times = Table(
    "build_times",
    metadata,
    Column("build_id", String, primary_key=True),  # no foreign key: what was learned outlives the build
    Column("model", String(71), nullable=False),
    Column("target_id", String, nullable=False),
    Column("optimization_level", Integer, nullable=False),
    Column("nodes", Integer, nullable=False),  # of the graph: known before the build, as its layers are not
    Column("total_s", Float, nullable=False),
    Column("marks", Json, nullable=False),  # path of stage or phase → seconds from its start to the end of the build
    Column("created_at", Utc, nullable=False),
    Index("ix_build_times_model", "model", "target_id", "created_at"),
    Index("ix_build_times_nodes", "target_id", "nodes"),
)
