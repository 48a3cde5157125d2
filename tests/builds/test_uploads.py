"""Uploads whose sender goes away: nobody hears the answer, and nothing of a model is kept."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from app.builds.upload import Uploads
from app.errors import Refused
from tests.scene import MODEL, Scene


async def _half() -> AsyncIterator[bytes]:
    yield bytes(1000)


def test_a_body_that_is_shorter_than_announced_is_refused_and_not_kept(small: Scene) -> None:
    with pytest.raises(Refused) as caught:
        asyncio.run(Uploads(small.parts).receive(MODEL, _half(), announced=2000))
    assert caught.value.code == "upload_incomplete"
    assert "1000 of 2000" in caught.value.detail
    assert [p for p in (small.parts.settings.data_dir / "store" / "models").rglob("*") if p.is_file()] == []
