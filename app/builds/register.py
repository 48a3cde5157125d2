"""Make a worker and its target known, from what the builder reported."""

import hashlib
import json
import os
import platform
import socket

from app.builds.parts import Parts
from app.db import targets
from app.db.targets import WorkerRow
from app.domain.capabilities import capabilities_of, default_compute_capabilities
from app.domain.ids import new_id
from app.worker.inspection import MAX_OPSET
from app.worker.messages import Probed
from trtforge.contract.target import Target


def register(parts: Parts, worker: str, probed: Probed) -> str:
    """Record the worker and return the id of its target."""
    target = target_of(probed)
    supported = tuple(probed.compute_capabilities)
    levels = probed.default_optimization_level, probed.max_optimization_level
    table = capabilities_of(probed.builder, supported, *levels, MAX_OPSET, probed.options)
    at = parts.now()
    with parts.database.write() as tx:
        target_id = targets.see_target(tx, new_id("tgt"), _fingerprint(target), target, table, at)
        row = WorkerRow(worker, target_id, socket.gethostname(), os.getpid(), parts.settings.slots)
        targets.add_worker(tx, row, at)
    return target_id


def forget_workers(parts: Parts, workers: list[str]) -> None:
    """Take workers off the list: they said good-bye, or their staging was swept because they are dead."""
    with parts.database.write() as tx:
        targets.remove_workers(tx, workers)


def target_of(probed: Probed) -> Target:
    """Return the fingerprint of the hardware that this builder builds for here; portable when it names no GPU."""
    return Target(
        builder=probed.builder,
        builder_version=probed.builder_version,
        gpu=probed.gpu,
        compute_capabilities=default_compute_capabilities(tuple(probed.compute_capabilities)),
        driver=probed.driver,
        cuda=probed.cuda,
        os=platform.system().lower(),
        arch=platform.machine(),
    )


def _fingerprint(target: Target) -> str:
    canonical = json.dumps(target.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()
