"""TensorRT's own Python bindings, set up on the libraries of TensorRT for RTX: the real API, without a GPU.

They prove that we speak that API. They prove nothing of what TensorRT does on a GPU.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.worker.models import packaged

STANDIN = Path(__file__).with_name("standin")  # to be found before them
_LOCKS = Path(__file__).parents[1]
_PLUGINS = "_Bool initLibNvInferPlugins(void* logger, const char* space) { return 1; }\n"
_PACKAGE = "from tensorrt_bindings import *\nfrom tensorrt_bindings import __version__\n"  # as NVIDIA's own does


def bindings(major: str, folder: Path) -> dict[str, str]:
    """Lay out in `folder` what `import tensorrt` of that major version takes; return the environment that finds it."""
    installed = _installed(major, folder)
    libraries, package = folder / "libraries", folder / "package"
    libraries.mkdir()
    (package / "tensorrt").mkdir(parents=True)
    (package / "tensorrt" / "__init__.py").write_text(_PACKAGE)
    rtx = packaged("tensorrt_rtx_libs")
    (libraries / f"libnvinfer.so.{major}").symlink_to(rtx / "libtensorrt_rtx.so.1")
    (libraries / f"libnvonnxparser.so.{major}").symlink_to(rtx / "libtensorrt_onnxparser_rtx.so.1")
    _compile(folder / "plugins.c", libraries / f"libnvinfer_plugin.so.{major}")
    paths = [str(package), str(installed), os.environ.get("PYTHONPATH", "")]
    return {"LD_LIBRARY_PATH": str(libraries), "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def _installed(major: str, folder: Path) -> Path:
    """Return where `make` has installed them; in an environment that it did not make they are installed here."""
    made = Path(sys.prefix) / f"bindings-{major}"
    if made.is_dir():
        return made
    here = folder / "installed"
    lock = _LOCKS / f"bindings-{major}.lock"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
    subprocess.run([*pip, "--no-deps", "--target", str(here), "-r", str(lock)], check=True)
    return here


def _compile(source: Path, library: Path) -> None:
    source.write_text(_PLUGINS)
    system = shutil.which("cc")
    compiler = [system] if system else [sys.executable, "-m", "ziglang", "cc"]  # which compiles its own C library first
    subprocess.run([*compiler, "-shared", "-fPIC", "-nostdlib", "-o", str(library), str(source)], check=True)
