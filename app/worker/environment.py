"""What a child sees of our environment: an allow-list, so that no token and no database URL reaches native code."""

import os
import site
from collections.abc import Mapping
from pathlib import Path

_NAMES = frozenset(
    {"PATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_MODULE_LOADING", "LANG", "TZ"}
)
_PREFIXES = ("NVIDIA_", "LC_")
_ROOT = Path(__file__).resolve().parents[2]  # where `app` is imported from


def child_environment(ours: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the environment of a child in `folder`, which is also its home and its place for temporary files."""
    theirs = {name: value for name, value in ours.items() if name in _NAMES or name.startswith(_PREFIXES)}
    at = str(folder.resolve())
    return {**theirs, "HOME": at, "TMPDIR": at, "PYTHONPATH": _import_path(ours.get("PYTHONPATH", ""))}


def _import_path(ours: str) -> str:
    """Absolute entries only: an empty or relative one would be looked up in the folder that holds uploaded names."""
    entries = [str(Path(entry).resolve()) for entry in ours.split(os.pathsep) if entry]
    if str(_ROOT) not in (*entries, *site.getsitepackages()):
        entries.append(str(_ROOT))
    return os.pathsep.join(entries)
