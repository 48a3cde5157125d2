"""An EventSource, which can send no token, follows a build by a ticket across a restart and stops at the end."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tests.conftest import Server
from tests.system.api import Api
from tests.system.models import SLOW, relus
from tests.system.soundness import eventually
from tests.system.test_sse_clients import LONG, browser, by_browser, connections
from trtforge.client import Client

FIRST = "the-first-token-of-the-tests"

__all__ = ["browser"]  # a fixture


def test_an_event_source_follows_by_its_ticket_across_a_restart(
    browser: list[str],
    make_server: Callable[..., Server],
) -> None:
    server = make_server(admin_token=FIRST, drain_s="0.5", cancel_grace_s="0.5", slots="1", heartbeat_s="0.5")
    api = Api(server, FIRST)
    build = api.start(relus(SLOW))
    api.building(build)
    with Client(server.url, token=FIRST) as client:
        ticket = client.ticket(build)
    before = connections(server)
    with ThreadPoolExecutor(1) as clients:
        followed = clients.submit(by_browser, browser, server.url + ticket.url)
        try:
            eventually(lambda: connections(server) > before, 30, "nobody follows")
            assert server.stop() == 0
            server.start()
            api.until(build, lambda b: b["attempt"] == 2 and b["stage"] == "build")
        finally:
            assert api.http.delete(f"/v1/builds/{build}").status_code == 202
        assert api.ended(build)["state"] == "cancelled"
        seen = followed.result(LONG)
    stored = [s["event"] for s in seen if "seq" in s.get("event", {}) and s["event"]["type"] != "snapshot"]
    assert stored == api.events(build)
    assert max(s["open"] for s in seen if "open" in s) >= 2
    assert seen[-1] == {"error": 204, "closed": True}
    assert ticket.ticket not in server.log.read_text()
