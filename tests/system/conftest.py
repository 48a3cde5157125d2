"""Servers that tests share where a test changes nothing that another sees."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Server
from tests.system.api import Api


def running(folder: Path, **settings: str) -> Iterator[Server]:
    """Run one server for as long as a fixture lives, and see that it ends well."""
    server = Server(folder / "data", **settings).start()
    yield server
    assert server.stop() == 0, server.log.read_text()[-2000:]


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server for tests that read, or that build models of their own."""
    yield from running(
        tmp_path_factory.mktemp("shared"), heartbeat_s="0.5", max_body_bytes="300000", max_model_bytes="40000000"
    )


@pytest.fixture
def api(shared: Server) -> Api:
    return Api(shared)


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A server of the module's own with one slot and a short grace."""
    for server in running(tmp_path_factory.mktemp("calm"), slots="1", cancel_grace_s="0.5", heartbeat_s="0.5"):
        yield Api(server)
