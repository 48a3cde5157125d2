"""Make a worker and its target known, from what the builder reported."""

import hashlib
import json
import os
import platform
import socket
from dataclasses import asdict
from typing import Any

from app.builds.parts import Parts
from app.db import targets
from app.db.targets import WorkerRow
from app.domain.capabilities import capabilities_of, default_compute_capabilities, with_plugins
from app.domain.ids import new_id
from app.worker.devices import Device, processors
from app.worker.inspection import MAX_OPSET
from app.worker.messages import Gpu, Probed
from trtforge.contract.target import GpuFacts, Target


def register(parts: Parts, worker: str, probed: Probed, device: Device | None = None, owner: str | None = None) -> str:
    """Record the worker and return the id of its target.

    `device` is what it builds on, by default processors; `owner` the process's own id, by default the worker's.
    """
    device = device or processors(parts.settings.slots)
    target = target_of(probed, device.gpu)
    supported = tuple(probed.compute_capabilities) or target.compute_capabilities
    levels = probed.default_optimization_level, probed.max_optimization_level
    table = capabilities_of(probed.builder, supported, *levels, MAX_OPSET, probed.options)
    table = with_plugins(table, parts.plugins.digests)
    at = parts.now()
    with parts.database.write() as tx:
        target_id = targets.see_target(tx, new_id("tgt"), _fingerprint(target), target, table, at)
        gpu = _shown(device.gpu)
        row = WorkerRow(worker, owner or worker, target_id, gpu, socket.gethostname(), os.getpid(), device.slots)
        targets.add_worker(tx, row, at)
    return target_id


def forget_workers(parts: Parts, owners: list[str]) -> None:
    """Take a process's workers off the list: it said good-bye, or its staging was swept because it is dead."""
    with parts.database.write() as tx:
        targets.remove_workers(tx, owners)


def target_of(probed: Probed, gpu: Gpu | None = None) -> Target:
    """Return the fingerprint of the hardware that this builder builds for here.

    A plan of TensorRT for RTX does not depend on the `gpu` at hand: it is portable on any.
    """
    supported = tuple(probed.compute_capabilities)
    bound = gpu if probed.builder == "tensorrt" else None
    return Target(
        builder=probed.builder,
        builder_version=probed.builder_version,
        gpu=bound and bound.name,
        compute_capabilities=(bound.compute_capability,) if bound else default_compute_capabilities(supported),
        driver=bound and bound.driver,
        cuda=bound and bound.cuda,
        mig_profile=bound and bound.mig_profile,
        os=platform.system().lower(),
        arch=platform.machine(),
    )


def _shown(gpu: Gpu | None) -> dict[str, Any] | None:
    return GpuFacts.model_validate(asdict(gpu)).model_dump(mode="json") if gpu else None


def _fingerprint(target: Target) -> str:
    canonical = json.dumps(target.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()
