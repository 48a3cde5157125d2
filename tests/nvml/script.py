"""NVML for machines that we do not have: a real library, whose answers a file gives and a test may change at any time."""

import shutil
import subprocess
import sys
from pathlib import Path

DRIVER_NOT_LOADED, NO_PERMISSION, GPU_IS_LOST, VERSIONS_DIFFER = 9, 4, 15, 18
GIB = 1 << 30
H200 = "GPU-11111111-2222-3333-4444-555555555555"
L40S = "GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"


def compiled(folder: Path) -> Path:
    """Build the library in `folder`, with the system's compiler or Zig's."""
    folder.mkdir(parents=True, exist_ok=True)
    found = shutil.which("cc")
    command = [found] if found else [sys.executable, "-m", "ziglang", "cc"]
    source, goal = Path(__file__).with_name("nvml.c"), folder / "libnvidia-ml.so.1"
    subprocess.run([*command, "-shared", "-fPIC", "-O1", "-o", str(goal), str(source)], check=True, timeout=300)
    return folder


class Script:
    """What the library answers. Written as a whole each time, so that no call sees half of it."""

    def __init__(self, library: Path, path: Path) -> None:
        self._library, self._path = library, path
        self.say()

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_LIBRARY_PATH": str(self._library), "NVIDIA_ML_SCRIPT": str(self._path)}

    def say(self, *lines: str) -> None:
        draft = self._path.with_suffix(".new")
        draft.write_text("".join(f"{line}\n" for line in lines))
        draft.replace(self._path)


def gpu(
    uuid: str = H200,
    name: str = "NVIDIA H200",
    capability: tuple[int, int] = (9, 0),
    total: int = 150754820096,
    used: int = GIB,
    percent: int = 0,
    mig: int = 0,
) -> str:
    return f"gpu {uuid} {capability[0]} {capability[1]} {total} {used} {percent} {mig} {name}"


def l40s(uuid: str = L40S) -> str:
    return gpu(uuid, "NVIDIA L40S", (8, 9), 48305799168, mig=-1)


def instance(uuid: str, parent: str, number: int, name: str = "NVIDIA H200 MIG 1g.18gb") -> str:
    return f"mig {uuid} {parent} {number} {16 * GIB} 0 {name}"


def process(uuid: str, pid: int, memory: int = GIB, percent: int = 0) -> str:
    return f"process {uuid} {pid} {memory} {percent}"


def fail(what: str, code: int) -> str:
    return f"fail {what} {code}"
