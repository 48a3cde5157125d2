"""Can a machine take an engine? Field by field, with the reason, and the policy that would overlook it.

A plan of TensorRT is made for one GPU model, driver and exact version; other machines may load it, at the risk that the
caller's policy names. A portable plan (TensorRT for RTX) is made for a list of compute capabilities and one exact version.
"""

from collections.abc import Iterator, Sequence
from typing import get_args

from trtforge.contract.resolve import Objection, Policy
from trtforge.contract.target import Target, TargetSelector

POLICIES: tuple[Policy, ...] = get_args(Policy)  # strict to loose
EXACT_VERSION = "a plan loads only in the very version that made it"
BOUND = frozenset({"gpu", "driver", "cuda", "mig_profile"})  # what a portable plan is not made for


def objections(have: Target, machine: TargetSelector) -> tuple[Objection, ...]:
    """Return what speaks against loading an engine made for `have` on `machine`. Nothing: it was made for it."""
    return tuple(_objections(have, machine))


def needed(found: Sequence[Objection]) -> Policy | None:
    """Return the strictest policy that overlooks all of them; None: none does."""
    policies = [one.needs for one in found]
    if None in policies:
        return None
    return max((p for p in policies if p), key=POLICIES.index, default="exact")


def allows(policy: Policy, needs: Policy | None) -> bool:
    return needs is not None and POLICIES.index(needs) <= POLICIES.index(policy)


def _objections(have: Target, machine: TargetSelector) -> Iterator[Objection]:
    yield from version_and_system(have, machine)
    yield from _portable(have, machine) if have.gpu is None else _bound(have, machine)


def version_and_system(have: Target, machine: TargetSelector) -> Iterator[Objection]:
    """Yield what no policy overlooks for any plan: the system, and the version that made it."""
    for field in ("os", "arch"):
        yield from _same(have, machine, field, None, f"a plan is made for one {field}")
    if machine.builder in (None, have.builder):
        yield from _same(have, machine, "builder_version", None, EXACT_VERSION)
    else:
        needs: Policy | None = "portable" if have.gpu is None else None
        why = f"the machine needs the runtime of {have.builder} {have.builder_version} for it"
        yield _against(have, machine, "builder", needs, why)


def _portable(have: Target, machine: TargetSelector) -> Iterator[Objection]:
    asked = machine.compute_capabilities
    if asked is not None and not set(asked) <= set(have.compute_capabilities):
        yield _against(have, machine, "compute_capabilities", None, "it holds no kernels for this GPU")


def _bound(have: Target, machine: TargetSelector) -> Iterator[Objection]:
    same_gpu = machine.gpu == have.gpu
    asked = machine.compute_capabilities
    if asked is None and not same_gpu:
        yield _against(have, machine, "compute_capabilities", None, "the machine did not say which it has")
    elif asked is not None and set(asked) != set(have.compute_capabilities):
        yield _against(have, machine, "compute_capabilities", None, "its kernels are for another kind of GPU")
    if not same_gpu:
        why = "its kernels were timed on another GPU" if machine.gpu else "the machine did not say which it has"
        yield _against(have, machine, "gpu", "same_compute_capability", why)
    if machine.mig_profile != have.mig_profile:
        why = "its kernels were timed on another share of the GPU"
        yield _against(have, machine, "mig_profile", "same_compute_capability", why)
    yield from _driver(have, machine)
    yield from _same(have, machine, "cuda", "same_driver_branch", "it was made with another CUDA")


def _driver(have: Target, machine: TargetSelector) -> Iterator[Objection]:
    if machine.driver == have.driver:
        return
    if machine.driver is None:
        yield _against(have, machine, "driver", "same_compute_capability", "the machine did not say which it has")
    elif _branch(machine.driver) == _branch(have.driver or ""):
        yield _against(have, machine, "driver", "same_driver_branch", "another driver of the same branch")
    else:
        yield _against(have, machine, "driver", "same_compute_capability", "a driver of another branch")


def _branch(driver: str) -> str:
    """NVIDIA's release branch: 580 of 580.159.04."""
    return driver.partition(".")[0]


def _same(have: Target, machine: TargetSelector, field: str, needs: Policy | None, why: str) -> Iterator[Objection]:
    if getattr(machine, field) not in (None, getattr(have, field)):
        yield _against(have, machine, field, needs, why)


def _against(have: Target, machine: TargetSelector, field: str, needs: Policy | None, why: str) -> Objection:
    return Objection(field=field, have=getattr(have, field), asked=getattr(machine, field), needs=needs, why=why)
