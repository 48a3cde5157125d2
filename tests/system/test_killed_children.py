"""Children that the host kills, as for want of memory: nobody is to blame, and asking again helps."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tests.conftest import Server
from tests.system.api import Api, digest_of
from tests.system.models import SLOW, relus
from tests.system.soundness import assert_sound, children, eventually


def test_a_model_whose_reader_is_killed_can_be_sent_again(make_server: Callable[..., Server]) -> None:
    server = make_server()
    api = Api(server)
    content = relus(SLOW)
    path = f"/v1/models/{digest_of(content)}"
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(api.http.put, path, content=content)
        eventually(lambda: children(server), 10, "no reader")
        for child in children(server):
            child.kill()
        answer = sent.result(30)
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert int(answer.headers["retry-after"]) > 0
    assert api.http.get(path).status_code == 404
    assert api.http.put(path, content=content).status_code == 201
    assert_sound(server)


def test_a_service_whose_first_look_at_the_builder_is_killed_becomes_ready_all_the_same(
    make_server: Callable[..., Server],
) -> None:
    server = make_server(ready=False)
    eventually(lambda: children(server), 30, "no probe")
    for child in children(server):
        child.kill()
    api = Api(server)
    eventually(lambda: "SIGKILL" in api.http.get("/readyz").text, 5, "the probe was over")
    server.until_ready()
    assert api.built(relus())["state"] == "succeeded"
    assert_sound(server)
