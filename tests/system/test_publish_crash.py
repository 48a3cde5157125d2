"""kill -9 of the server at each named point of publish, with the real builder: no engine or a whole one, never half."""

from collections.abc import Iterator

import pytest

from tests.system.api import Api
from tests.system.halting import POINTS, Halting
from tests.system.models import relus
from tests.system.soundness import assert_sound, children, manifests, strays
from trtforge.signature import PublicKeys, new_key

PRIVATE, PUBLIC = new_key()
KEPT = ("manifest_linked", "manifest_kept", "concluding", "concluded")  # the manifest is there: nothing is built again


@pytest.fixture(scope="module")
def halting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Halting]:
    """One server that is killed and started again by each test in turn: a start costs seconds."""
    server = Halting(tmp_path_factory.mktemp("halting") / "data", slots="1", signing_key=PRIVATE)
    server.start()
    yield server
    assert server.stop() == 0
    assert "Traceback" not in server.log.read_text()


@pytest.mark.parametrize("point", POINTS)
def test_a_server_killed_while_publishing_serves_a_whole_engine_afterwards(point: str, halting: Halting) -> None:
    api = Api(halting)
    before = manifests(halting.data)
    digest = api.upload(relus())
    halting.arm(point, "SIGKILL")
    submitted = api.submit(digest)
    assert halting.process is not None
    assert halting.process.wait(60) == -9
    assert not halting.armed.exists()
    assert strays(halting) == []
    assert len(manifests(halting.data)) - len(before) == (point in KEPT)

    halting.start()
    build = api.ended(submitted["build"]["id"])
    assert build["state"] == "succeeded"
    kinds = [e["type"] for e in api.events(build["id"])]
    assert (kinds.count("started"), kinds.count("requeued")) == ((1, 0) if point in KEPT else (2, 1))
    assert kinds.count("phase_started") == kinds.count("phase_finished")
    assert (kinds[-1], kinds.count("succeeded")) == ("succeeded", 1)
    assert api.get(f"/v1/requests/{submitted['request_id']}")["state"] == "served"
    assert api.submit(digest)["disposition"] == "cached"
    key = build["engine"]["engine_key"]
    raw, signature = (api.http.get(f"/v1/engines/{key}{part}").content for part in ("", "/signature"))
    assert PublicKeys.read(PUBLIC).check(signature, raw)  # whatever the crash left, manifest and signature fit
    assert children(halting) == []
    assert_sound(halting)
