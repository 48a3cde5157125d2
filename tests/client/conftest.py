"""One service for the tests of the command: each test asks for engines of its own."""

from collections.abc import Iterator

import pytest

from tests.conftest import Server


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(
        tmp_path_factory.mktemp("service") / "data", heartbeat_s="0.5", cancel_grace_s="2", slots="2"
    ).start()
    yield server
    server.stop()
