"""Which timing cache a build uses: kernels timed by another version, on another GPU or driver branch say nothing here."""

import hashlib
import re

from trtforge.contract.target import Target

_ODD = re.compile(r"[^A-Za-z0-9.]+")


def timing_cache_name(target: Target) -> str:
    """Return the name of the file for engines of `target`: readable, and one for each of what decides about kernels."""
    branch = (target.driver or "none").partition(".")[0]  # NVIDIA's release branch: 580 of 580.159.04
    words = (
        target.builder,
        target.builder_version,
        target.gpu or "none",
        *target.compute_capabilities,
        target.mig_profile or "",
        branch,
    )
    exact = hashlib.sha256("\n".join(words).encode()).hexdigest()[:8]
    return "_".join([*filter(None, (_ODD.sub("-", word)[:64] for word in words)), exact]) + ".cache"
