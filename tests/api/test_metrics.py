"""`/metrics` as the scraper's own parser reads it, after real builds, a cancel and requests that went wrong."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from app.api import middleware
from app.builds.metrics import Metrics
from app.main import create_app
from app.settings import Settings
from tests.conftest import TLS, Server, light
from trtforge.client import Client
from trtforge.contract.builds import Submit

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scrape(url: str, **headers: str) -> Samples:
    answer = httpx.get(f"{url}/metrics", headers=headers, verify=TLS)
    assert answer.status_code == 200
    return read(answer.text)


def read(page: str) -> Samples:
    return {
        (s.name, frozenset(s.labels.items())): s.value for f in text_string_to_metric_families(page) for s in f.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


def test_builds_stops_uploads_and_answers_are_counted(server: Server):
    path = light("densenet121")  # builds for half a minute
    with Client(server.url) as client:
        model = client.upload(light("squeezenet"))
        assert client.wait(client.submit(Submit(model=model.digest)).request_id).served
        client.manifest(next(client.engines()).engine_key)
        long = client.submit(Submit(model=client.upload(path).digest))
        assert long.build
        next(event for event in client.events(long.build.id) if event.type == "stage" and event.stage == "build")
        running = scrape(server.url)
        client.cancel(long.build.id)
        assert client.wait(long.request_id).state == "cancelled"
    for address in ("/nothing/here", "/nor/here", "/v1/builds/bld_none"):
        httpx.get(server.url + address, verify=TLS)
    httpx.request("PROPFIND", f"{server.url}/livez", verify=TLS)
    after = scrape(server.url)
    assert value(running, "trtforge_builds_running") == 1
    assert value(after, "trtforge_builds_running") == 0
    assert value(after, "trtforge_builds_total", outcome="succeeded", code="") == 1
    assert value(after, "trtforge_builds_total", outcome="cancelled", code="") == 1
    assert sum(v for (name, _), v in after.items() if name == "trtforge_build_stop_seconds_count") == 1
    for stage in ("prepare", "parse", "build", "publish"):
        assert value(after, "trtforge_build_stage_seconds_count", stage=stage) == 1
    sizes = light("squeezenet").stat().st_size + path.stat().st_size
    assert value(after, "trtforge_upload_bytes_total") == value(after, "trtforge_store_bytes", kind="models") == sizes
    assert value(after, "trtforge_store_bytes", kind="plans") > 1 << 20
    assert value(after, "trtforge_http_requests_total", method="GET", route="none", code="404") == 2
    assert value(after, "trtforge_http_requests_total", method="GET", route="/v1/builds/{build_id}", code="404") == 1
    assert value(after, "trtforge_http_requests_total", method="other", route="/livez", code="405") == 1
    assert value(after, "trtforge_http_requests_total", method="GET", route="/v1/engines/{key}", code="200") >= 1
    assert value(after, "trtforge_ready") == 1
    assert value(after, "trtforge_event_loop_lag_seconds_count") > 0
    labels = {text for _, pairs in after for _, text in pairs}
    assert [text for text in labels if "sha256" in text or "bld_" in text or long.build.id in text] == []


def test_names_follow_the_scraper_and_openmetrics_is_served_too(tmp_path: Path):
    app = create_app(Settings(data_dir=tmp_path / "data", lock_dir=tmp_path / "locks"))

    async def ask(accept: str) -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            return await client.get("/metrics", headers={"Accept": accept})

    plain = asyncio.run(ask("text/plain"))
    assert plain.headers["Content-Type"].startswith("text/plain")
    families = [f for f in text_string_to_metric_families(plain.text) if f.name.startswith("trtforge_")]
    assert len(families) > 10
    for family in families:
        assert family.documentation.endswith("."), family.name
        for sample in family.samples:
            assert family.type != "counter" or sample.name.endswith("_total") or sample.name.endswith("_created")
    other = asyncio.run(ask("application/openmetrics-text; version=1.0.0"))
    assert other.headers["Content-Type"].startswith("application/openmetrics-text")
    assert {f.name for f in openmetrics(other.text)} >= {f.name for f in families if f.type == "counter"}
    # the database was never opened here: its gauges are not a number, and the page is there all the same
    assert "trtforge_builds_queued NaN" in plain.text


def test_a_scraper_needs_the_token_where_others_do(make_server: Callable[..., Server]):
    token = "a token of sixteen letters"
    server = make_server(admin_token=token)
    refused = httpx.get(f"{server.url}/metrics", verify=TLS)
    assert (refused.status_code, refused.json()["code"]) == (401, "unauthorized")
    assert value(scrape(server.url, Authorization=f"Bearer {token}"), "trtforge_ready") == 1


def test_an_answer_that_is_cut_is_counted_once():
    metrics = Metrics()

    async def broken(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError("cut")

    async def nothing(*_):
        return {"type": "http.request"}

    scope = {"type": "http", "method": "GET", "path": "/x", "headers": []}
    with pytest.raises(RuntimeError):
        asyncio.run(middleware.RequestLog(broken, metrics)(scope, nothing, nothing))
    page = metrics.page("")[0].decode()
    assert value(read(page), "trtforge_http_requests_total", method="GET", route="none", code="200") == 1
