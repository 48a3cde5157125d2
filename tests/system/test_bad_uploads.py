"""Uploads that cannot be a model, or never end: refused with a remedy, and nothing of them is kept."""

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.conftest import Server, light
from tests.system.api import Api, digest_of, eventually, staged
from tests.system.models import relus, same_relus
from tests.system.problems import assert_problem, nothing_changes

WHOLE = light("squeezenet").read_bytes()
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 12345\n"
NO_MODELS = {
    "empty": b"",
    "html": b"<!DOCTYPE html><html><body>404 Not Found</body></html>",
    "json": b'{"message": "Not Found"}',
    "lfs pointer": POINTER,
    "zip": b"PK\x03\x04" + bytes(200),
    "pickle": b"\x80\x04\x95" + bytes(200),
    "truncated": same_relus()[:-20],
    "truncated late": WHOLE[:-1],
    "truncated early": WHOLE[: len(WHOLE) // 3],
    "zeros": bytes(10_000),
    "garbage": bytes(range(256)) * 40,
    "varint for ever": b"\xff" * 5000,
    "text": b"hello, this is a model",
    "gzip": b"\x1f\x8b\x08" + bytes(100),
}


@pytest.mark.parametrize("name", NO_MODELS)
def test_bytes_that_are_no_model(api: Api, name: str) -> None:
    content = NO_MODELS[name]
    digest = digest_of(content)
    with nothing_changes(api):
        body = assert_problem(api.http.put(f"/v1/models/{digest}", content=content), "not_an_onnx_model")
        assert "/tmp" not in body["detail"]  # no path of the server's
        assert_problem(api.http.get(f"/v1/models/{digest}"), "not_found")


def test_a_digest_of_other_bytes_is_refused_and_the_right_one_named(api: Api) -> None:
    content = relus()
    wrong = "sha256:" + "1" * 64
    with nothing_changes(api):
        body = assert_problem(api.http.put(f"/v1/models/{wrong}", content=content), "digest_mismatch")
        assert body["digest"] == digest_of(content)
        for digest in (wrong, digest_of(content)):
            assert_problem(api.http.get(f"/v1/models/{digest}"), "not_found")


def test_what_was_refused_can_be_sent_right_afterwards(api: Api) -> None:
    content = relus()
    digest = digest_of(content)
    assert_problem(api.http.put(f"/v1/models/{digest}", content=content[:-5]), "digest_mismatch")
    assert api.http.put(f"/v1/models/{digest}", content=content).status_code == 201
    assert api.http.put(f"/v1/models/{digest}", content=content).status_code == 200


@pytest.mark.parametrize("head", ["Content-Length: 5000000", "Transfer-Encoding: chunked"])
def test_an_upload_cut_half_way_leaves_nothing(api: Api, head: str) -> None:
    content = WHOLE[:3_000_000]
    digest = digest_of(content)
    with nothing_changes(api):
        with socket.create_connection(("127.0.0.1", api.server.port)) as cut:
            cut.sendall(f"PUT /v1/models/{digest} HTTP/1.1\r\nHost: here\r\n{head}\r\n\r\n".encode())
            start = f"{len(content):x}\r\n".encode() if "chunked" in head else b""
            cut.sendall(start + content)
            eventually(lambda: staged(api.server.data))
        eventually(lambda: staged(api.server.data) == [])
        assert_problem(api.http.get(f"/v1/models/{digest}"), "not_found")


@pytest.mark.parametrize("announced", [True, False])
def test_a_model_over_the_limit_is_refused(api: Api, announced: bool) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(45):
            yield bytes(1_000_000)

    digest = "sha256:" + "2" * 64
    with nothing_changes(api):
        length = {"Content-Length": "45000000"} if announced else {}
        body = assert_problem(api.http.put(f"/v1/models/{digest}", content=chunks(), headers=length), "too_large")
        assert body["limit"] == 40_000_000
        assert "TRTFORGE_MAX_MODEL_BYTES" in body["detail"]
        assert "/v1/files" in body["remedy"]


def test_a_model_over_two_gibibytes_is_refused_before_it_is_sent(server: Server) -> None:
    """Nothing is set: one file of protobuf can hold no more, and the answer says how to send it in several."""
    head = f"PUT /v1/models/sha256:{'3' * 64} HTTP/1.1\r\nHost: here\r\nContent-Length: {(2 << 30) + 1}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(head.encode())
        said = b""
        while b"save_as_external_data" not in said and (more := connection.recv(1 << 16)):
            said += more
    assert said.startswith(b"HTTP/1.1 413 ")
    assert b"save_as_external_data" in said


def test_a_disk_that_is_nearly_full_takes_no_models(make_server: Callable[..., Server], tmp_path: Path) -> None:
    server = make_server(min_free_bytes=str(1 << 60))
    api = Api(server)
    content = relus()
    answer = api.http.put(f"/v1/models/{digest_of(content)}", content=content)
    body = assert_problem(answer, "store_full")
    assert answer.status_code == 507
    assert "TRTFORGE_MIN_FREE_BYTES" in body["detail"]
    assert staged(server.data) == []


@pytest.mark.parametrize(
    "digest",
    ["nonsense", "sha256:", "sha256:" + "A" * 64, "sha256:" + "0" * 63, "sha256:" + "0" * 65, "md5:" + "0" * 32],
)
@pytest.mark.parametrize("method", ["PUT", "GET"])
def test_what_is_no_digest_is_refused(api: Api, digest: str, method: str) -> None:
    with nothing_changes(api):
        assert_problem(api.http.request(method, f"/v1/models/{digest}"), "invalid_request")


def test_the_same_model_sent_by_many_at_once_is_one(api: Api) -> None:
    content = relus(300)
    url = f"{api.server.url}/v1/models/{digest_of(content)}"
    with ThreadPoolExecutor(6) as clients:
        codes = sorted(clients.map(lambda _: httpx.put(url, content=content, timeout=60).status_code, range(6)))
    assert codes == [200] * 5 + [201]
