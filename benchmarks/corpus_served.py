"""What the service says of one model, step by step: upload, preflight, submit, end of the build."""

import hashlib
from typing import Any

import httpx

Json = dict[str, Any]
WAITS = 30  # of a minute each, for one build


def served(http: httpx.Client, content: bytes, thorough: bool = True) -> Json:
    """Return the codes of every step, and what the builder must be given to be asked the same.

    `thorough`: also build what preflight has refused; else the first of its codes counts as the end of the build.

    `upload`, `submit`, `build`: the code of the refusal or failure, None when all was well or it did not come to that.
    `preflight`: the codes of its problems. `profiles`: those asked for, because the model has open axes.
    """
    digest = "sha256:" + hashlib.sha256(content).hexdigest()
    found: Json = {"upload": None, "preflight": [], "submit": None, "build": None, "profiles": [], "says": None}
    answer = http.put(f"/v1/models/{digest}", content=content)
    if answer.status_code >= 400:
        return found | {"upload": answer.json()["code"], "says": answer.json()["detail"][:300]}
    found["profiles"] = _needed(http, digest)
    spec = {"profiles": found["profiles"]}
    looked = _well(http.post(f"/v1/models/{digest}/preflight", json={"spec": spec}))
    found["preflight"] = sorted({problem["code"] for problem in looked["problems"]})
    if looked["problems"]:
        found["says"] = looked["problems"][0]["message"][:300]
        if not thorough:
            return found | {"build": looked["problems"][0]["code"], "stage": "parse"}
    asked = http.post("/v1/builds", json={"model": digest, "spec": spec}, headers={"Prefer": "wait=60"})
    if asked.status_code >= 400:
        return found | {"submit": asked.json()["code"], "says": asked.json()["detail"][:300]}
    return found | _ended(http, asked.json()["request_id"])


def _needed(http: httpx.Client, digest: str) -> list[Json]:
    """Return the template of profiles that a submit without any is refused with, [] when every axis is fixed."""
    model = _well(http.get(f"/v1/models/{digest}"))
    if all(t["shape"] is not None and None not in t["shape"] and not t["shape_values"] for t in model["inputs"]):
        return []
    refused = http.post("/v1/builds", json={"model": digest})
    template: list[Json] = refused.json().get("template", [])
    return template


def _ended(http: httpx.Client, request_id: str) -> Json:
    for _ in range(WAITS):
        request = _well(http.get(f"/v1/requests/{request_id}", headers={"Prefer": "wait=60"}))
        if request["state"] != "waiting":
            break
    if request["state"] == "served":
        return {"build": "built"}
    failure = request["failure"]
    return {
        "build": failure["code"],
        "stage": failure["stage"],
        "says": (failure["native"] or failure["message"])[:300],
    }


def _well(answer: httpx.Response) -> Json:
    if answer.status_code >= 400:
        raise RuntimeError(
            f"{answer.request.method} {answer.request.url.path}: {answer.status_code} {answer.text[:300]}"
        )
    found: Json = answer.json()
    return found
