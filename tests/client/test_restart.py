"""A service that goes away and comes back under a client that watches."""

import threading
from collections.abc import Callable

from tests.conftest import Server, light
from trtforge.client import Client
from trtforge.contract.builds import Submit
from trtforge.contract.events import PhaseStarted, Started, Stored


def test_events_go_on_after_a_restart_without_a_gap_or_a_repeat(make_server: Callable[..., Server]):
    server = make_server(drain_s="0", cancel_grace_s="0.5")
    with Client(server.url) as client, Client(server.url) as other:
        submitted = client.submit(Submit(model=client.upload(light("densenet121")).digest))
        assert submitted.build
        build_id = submitted.build.id
        seqs, attempts, restarted = [], [], threading.Thread(target=lambda: (server.stop(), server.start()))
        for event in client.events(build_id):
            if isinstance(event, Stored):
                seqs.append(event.seq)
            if isinstance(event, PhaseStarted) and not restarted.ident:
                restarted.start()
            if isinstance(event, Started):
                attempts.append(event.attempt)
                if event.attempt == 2:
                    restarted.join()
                    other.cancel(build_id)
        assert event.type == "cancelled"
        assert attempts == [1, 2]
        assert seqs == list(range(1, len(seqs) + 1))
        assert client.request(submitted.request_id).state == "cancelled"
