"""Models of several files over HTTP: uploaded in parts, checked against one another, built; and what is refused."""

import hashlib

import httpx
import numpy as np
import onnx
import pytest
from onnx.helper import make_node
from onnx.numpy_helper import from_array

from tests.conftest import Server
from tests.intake import hostile
from trtforge.client import Client


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("files") / "data").start()
    yield server
    server.stop()


WEIGHTS = np.arange(3 * 64, dtype=np.float32).tobytes()


def graph(location: str = "w.bin", **entries) -> bytes:
    weight = hostile.outside(location, dims=(3, 64), **entries)
    nodes = [make_node("MatMul", ["x", "w"], ["y"])]
    made = hostile.model(nodes, initializer=[weight], outputs=[hostile.value("y", (2, 64))])
    return bytes(made.SerializeToString())


def digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def put_file(server, content: bytes, of: str | None = None, **headers) -> httpx.Response:
    return httpx.put(f"{server.url}/v1/files/{of or digest(content)}", content=content, headers=headers)


def post_model(server, graph_name="net.onnx", **files: bytes) -> httpx.Response:
    listed = [{"name": n, "digest": digest(c), "size": len(c)} for n, c in files.items()]
    return httpx.post(f"{server.url}/v1/models", json={"graph": graph_name, "files": listed}, timeout=60)


def test_two_files_are_one_model_that_builds(server):
    files = {"w.bin": WEIGHTS, "net.onnx": graph()}
    missing = post_model(server, **files)
    assert (missing.status_code, missing.json()["code"]) == (409, "files_missing")
    assert [e["where"]["file"] for e in missing.json()["errors"]] == ["w.bin", "net.onnx"]
    assert [put_file(server, content).status_code for content in files.values()] == [201, 201]
    made = post_model(server, **files)
    assert made.status_code == 201, made.text
    model = made.json()
    lines = "".join(f"{hashlib.sha256(files[n]).hexdigest()}  {n}\n" for n in sorted(files))
    assert model["digest"] == digest(lines.encode())
    assert (model["graph"], model["parameter_bytes"]) == ("net.onnx", len(WEIGHTS))
    assert post_model(server, **files).status_code == 200
    address = f"{server.url}/v1/models/{model['digest']}"
    assert httpx.get(address).json() == model
    assert httpx.post(f"{address}/preflight", json={}, timeout=60).json()["ok"]
    asked = {"model": model["digest"]}
    answer = httpx.post(f"{server.url}/v1/builds", json=asked, headers={"Prefer": "wait=60"}, timeout=90).json()
    assert answer["build"]["state"] == "succeeded", answer["build"]["failure"]
    manifest = httpx.get(f"{server.url}/v1/engines/{answer['build']['engine_key']}").json()
    assert {f["name"] for f in manifest["model"]["files"]} == set(files)


def test_other_weights_are_another_model(server):
    plain, other = WEIGHTS, WEIGHTS[::-1]
    for content in (plain, other, graph()):
        put_file(server, content)
    one = post_model(server, **{"net.onnx": graph(), "w.bin": plain}).json()
    two = post_model(server, **{"net.onnx": graph(), "w.bin": other}).json()
    assert one["digest"] != two["digest"]


def test_an_upload_goes_on_where_it_stopped(server):
    content = np.random.default_rng(7).bytes(9 << 20)
    of = digest(content)
    half = len(content) // 2
    address = f"{server.url}/v1/files/{of}"
    assert httpx.head(address).status_code == 404
    first = put_file(server, content[:half], of, **{"Content-Range": f"bytes 0-{half - 1}/{len(content)}"})
    assert (first.status_code, first.json()["have"]) == (202, half)
    head = httpx.head(address)
    assert (head.headers["Upload-Offset"], head.headers["Upload-Complete"]) == (str(half), "?0")
    gap = put_file(server, b"x", of, **{"Content-Range": f"bytes {half + 5}-{half + 5}/{len(content)}"})
    assert (gap.status_code, gap.json()["code"], gap.json()["have"]) == (409, "upload_offset", half)
    rest = f"bytes {half}-{len(content) - 1}/{len(content)}"
    assert put_file(server, content[half:], of, **{"Content-Range": rest}).status_code == 201
    assert httpx.head(address).headers["Upload-Complete"] == "?1"
    assert put_file(server, content, of).status_code == 200


def test_a_cut_upload_keeps_what_came(server):
    content = np.random.default_rng(8).bytes(6 << 20)
    of = digest(content)

    def cut():
        yield content[: 5 << 20]
        raise ConnectionError

    with pytest.raises(ConnectionError):
        httpx.put(f"{server.url}/v1/files/{of}", content=cut(), headers={"Content-Length": str(len(content))})
    have = 0
    while not have:  # the service notices the cut in its own time
        have = int(httpx.head(f"{server.url}/v1/files/{of}").headers.get("Upload-Offset", "0"))
    rest = {"Content-Range": f"bytes {have}-{len(content) - 1}/{len(content)}"}
    answer = put_file(server, content[have:], of, **rest)
    while answer.status_code == 409:
        have = int(httpx.head(f"{server.url}/v1/files/{of}").headers["Upload-Offset"])
        rest = {"Content-Range": f"bytes {have}-{len(content) - 1}/{len(content)}"}
        answer = put_file(server, content[have:], of, **rest)
    assert answer.status_code == 201


def test_bytes_of_another_digest_are_not_kept(server):
    of = digest(b"right")
    answer = put_file(server, b"wrong", of)
    assert (answer.status_code, answer.json()["code"]) == (422, "digest_mismatch")
    assert httpx.head(f"{server.url}/v1/files/{of}").status_code == 404


@pytest.mark.parametrize(
    "header", ["bytes 5-4/9", "bytes 0-9/9", "bytes */9", "0-1/2", "bytes 0-99999999999999999999/9"]
)
def test_ranges_that_make_no_sense(server, header):
    answer = put_file(server, b"x", digest(b"y"), **{"Content-Range": header})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")


@pytest.mark.parametrize(
    "name", ["../w.bin", "/etc/passwd", "a/b", "", "..", "C:w", "a\\b", "plan", "model.onnx", "w\n"]
)
def test_names_that_are_not_beside_the_graph(server, name):
    answer = post_model(server, **{"net.onnx": graph(), name: WEIGHTS})
    assert (answer.status_code, answer.json()["code"]) == (422, "external_data_unsafe")


def test_what_graph_and_files_say_of_one_another_has_to_agree(server):
    unused, outside_of = graph("other.bin"), graph(offset=4)
    for content in (WEIGHTS, unused, outside_of, graph()):
        put_file(server, content)

    def code(**files):
        return post_model(server, **files).json()["code"]

    assert code(**{"net.onnx": unused, "w.bin": WEIGHTS}) == "external_data_missing"
    assert code(**{"net.onnx": outside_of, "w.bin": WEIGHTS}) == "external_data_unsafe"
    assert code(**{"net.onnx": graph(), "w.bin": WEIGHTS, "more.bin": WEIGHTS}) == "external_data_unsafe"
    assert code(graph_name="nowhere.onnx", **{"net.onnx": graph()}) == "invalid_request"
    wrong_size = [{"name": "net.onnx", "digest": digest(graph()), "size": 1}]
    answer = httpx.post(f"{server.url}/v1/models", json={"graph": "net.onnx", "files": wrong_size})
    assert answer.json()["code"] == "invalid_request"


def test_limits(make_server):
    server = make_server("small", max_file_bytes="100", max_model_files="2")
    assert put_file(server, b"x" * 101).json()["code"] == "too_large"
    endless = httpx.put(f"{server.url}/v1/files/{digest(b'')}", content=iter([b"x" * 60] * 3))
    assert endless.json()["code"] == "too_large"
    answer = post_model(server, **{"net.onnx": b"1", "a": b"2", "b": b"3"})
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


def test_the_client_sends_the_files_that_lie_beside(server, tmp_path):
    stored = from_array(np.random.default_rng(9).random((3, 64), np.float32), "w")
    model = hostile.model(
        [make_node("MatMul", ["x", "w"], ["y"])], initializer=[stored], outputs=[hostile.value("y", (2, 64))]
    )
    path = tmp_path / "net.onnx"
    onnx.save(model, path, save_as_external_data=True, location="net.weights", size_threshold=0)
    with Client(server.url) as client:
        sent = []
        known = client.upload(path, progress=lambda done, total: sent.append((done, total)))
        assert {f.name for f in known.files} == {"net.onnx", "net.weights"}
        assert sent
        assert client.upload(path).digest == known.digest
        assert client.preflight(known.digest).ok
