"""CUDA for machines that we do not have: a real library that counts what is held, and fails as a file says."""

import shutil
import subprocess
import sys
from pathlib import Path

HELD = ("contexts", "streams", "buffers", "graphs", "execs")


def compiled(folder: Path) -> Path:
    """Build the library in `folder`, with the system's compiler or Zig's."""
    found = shutil.which("cc")
    command = [found] if found else [sys.executable, "-m", "ziglang", "cc"]
    source, goal = Path(__file__).with_name("cuda.c"), folder / "libcuda.so.1"
    subprocess.run([*command, "-shared", "-fPIC", "-O1", "-o", str(goal), str(source)], check=True, timeout=300)
    return folder


class Script:
    """What the library does, from the next process on that uses it."""

    def __init__(self, library: Path, folder: Path) -> None:
        self._library, self._script, self._counts = library, folder / "cuda.txt", folder / "cuda-counts.txt"

    @property
    def environment(self) -> dict[str, str]:
        files = {"NVIDIA_CUDA_SCRIPT": str(self._script), "NVIDIA_CUDA_COUNTS": str(self._counts)}
        return {"LD_LIBRARY_PATH": str(self._library), **files}

    def say(self, *lines: str) -> None:
        self._script.write_text("".join(f"{line}\n" for line in lines))

    def counts(self) -> dict[str, tuple[int, int]]:
        """Kind → how many are held, how many there have been; of the last process. Nothing before the first."""
        if not self._counts.exists():
            return {}
        rows = (line.split() for line in self._counts.read_text().splitlines())
        return {kind: (int(held), int(made)) for kind, held, made in rows}

    def assert_nothing_is_held(self) -> None:
        counts = self.counts()
        assert set(counts) == set(HELD)
        assert {kind: held for kind, (held, _) in counts.items()} == dict.fromkeys(HELD, 0)
