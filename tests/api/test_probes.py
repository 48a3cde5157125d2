"""Probes answer although every thread is taken: a busy database must not look like a dead process."""

import asyncio

import anyio
import httpx
import pytest
from anyio.to_thread import current_default_thread_limiter

from app.main import create_app
from app.settings import Settings


@pytest.mark.parametrize(("path", "code"), [("/livez", 200), ("/readyz", 503)])
def test_a_probe_takes_no_thread(tmp_path, path, code):
    app = create_app(Settings(data_dir=tmp_path / "data", lock_dir=tmp_path / "locks"))

    async def ask() -> int:
        threads = current_default_thread_limiter()
        for _ in range(int(threads.total_tokens)):
            threads.acquire_on_behalf_of_nowait(object())
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            with anyio.fail_after(10):
                return (await client.get(path)).status_code

    assert asyncio.run(ask()) == code
