"""Engines that ship with a program, in an image say: read-only folders, found without the service and before the cache.

    <folder>/<hex of the key>/manifest.json   <the same>/signature.json (if it is signed)   <the same>/plan

`trtforge export --to FOLDER` writes them so, and an unpacked archive of `trtforge export` is one. Several folders in
`TRTFORGE_ENGINE_PATH` are parted as in `PATH`.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from trtforge.cache import Kept, read_kept
from trtforge.contract.compatibility import POLICIES, allows, needed, objections
from trtforge.contract.engines import Manifest, ManifestSpec
from trtforge.contract.resolve import Resolve
from trtforge.contract.spec import BuildSpec
from trtforge.signature import PublicKeys, SignatureRefused

Rank = tuple[int, int, str]


def find(want: Resolve, keys: PublicKeys | None = None, folders: Sequence[Path] | None = None) -> Kept | None:
    """Return the best shipped engine that fits, every byte verified; None: there is none.

    What is damaged, or not signed by one of `keys` when there are some, does not count.
    """
    for _, place in sorted(_fitting(want, _named() if folders is None else folders)):
        with suppress(OSError, ValueError, SignatureRefused):
            kept = read_kept(place)
            if keys:
                keys.check(kept.signature, kept.raw)
            return kept
    return None


def _fitting(want: Resolve, folders: Sequence[Path]) -> Iterator[tuple[Rank, Path]]:
    """Yield the places of engines that the machine can take, with their rank: best first, as the service ranks them."""
    for found in (path for folder in folders for path in folder.glob("*/manifest.json")):
        with suppress(OSError, ValueError):
            manifest = Manifest.model_validate_json(found.read_bytes())
            against = objections(manifest.target, want.target)
            needs = needed(against)
            if (
                manifest.model.digest == want.model
                and is_asked(manifest.spec, want.spec)
                and allows(want.policy, needs)
            ):
                assert needs is not None  # else no policy would allow it
                few = len(manifest.target.compute_capabilities)
                yield (POLICIES.index(needs), few, manifest.engine_key), found.parent


def is_asked(have: ManifestSpec, asked: BuildSpec | None) -> bool:
    """Tell whether an engine's spec is the one asked for.

    What is left open means the builder's default, which nobody here knows: it must have been left open then, too.
    """
    if asked is None:
        return True
    for field in BuildSpec.model_fields:
        wanted = getattr(asked, field)
        if wanted is None and getattr(have.requested, field) is not None:
            return False
        if wanted is not None and wanted != getattr(have.effective, field):
            return False
    return True


def _named() -> list[Path]:
    return [Path(one) for one in os.environ.get("TRTFORGE_ENGINE_PATH", "").split(os.pathsep) if one]
