"""As much of Kustomize as `deploy/` uses: resources, strategic merge patches, images. Anything else is refused."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]
KEYS = ("mountPath", "containerPort", "name")  # by which items of lists are the same item
KNOWN = {"apiVersion", "kind", "resources", "patches", "images"}


class Misfit(Exception):
    """A kustomization names what is not there, or asks for what is not known here."""


def render(folder: Path) -> list[Object]:
    """Return the objects of a kustomization. Raises `Misfit`."""
    said = yaml.safe_load((folder / "kustomization.yaml").read_text())
    if unknown := said.keys() - KNOWN:
        raise Misfit(f"{folder}: {unknown}")
    objects: list[Object] = []
    for resource in said.get("resources", []):
        path = folder / resource
        objects += render(path) if path.is_dir() else _read(path)
    for patch in said.get("patches", []):
        for change in _read(folder / patch["path"]):
            _patch(objects, change)
    for image in said.get("images", []):
        _retag(objects, image)
    return objects


def listed(folder: Path) -> set[Path]:
    """Return the files that a kustomization is made of."""
    said = yaml.safe_load((folder / "kustomization.yaml").read_text())
    paths = [folder / r for r in said.get("resources", [])] + [folder / p["path"] for p in said.get("patches", [])]
    below = [listed(path) if path.is_dir() else {path.resolve()} for path in paths]
    return {(folder / "kustomization.yaml").resolve()}.union(*below)


def _read(path: Path) -> list[Object]:
    if not path.is_file():
        raise Misfit(f"{path} is not there")
    return list(yaml.safe_load_all(path.read_text()))


def identity(one: Object) -> tuple[str, str, str]:
    return one["apiVersion"], one["kind"], one["metadata"]["name"]


def _patch(objects: list[Object], change: Object) -> None:
    for number, one in enumerate(objects):
        if identity(one) == identity(change):
            objects[number] = _merged(one, change)
            return
    raise Misfit(f"nothing here is {identity(change)}")


def _merged(old: Any, new: Any) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        return {k: _merged(old[k], new[k]) if k in old and k in new else new.get(k, old.get(k)) for k in old | new}
    if isinstance(old, list) and isinstance(new, list):
        key = next((k for k in KEYS if all(isinstance(i, dict) and k in i for i in old + new)), None)
        if key:
            items = {item[key]: item for item in old}
            added = {item[key]: _merged(items[item[key]], item) if item[key] in items else item for item in new}
            return list((items | added).values())
    return deepcopy(new)


def _retag(objects: list[Object], image: dict[str, str]) -> None:
    found = [c for one in objects for c in containers(one) if c["image"].partition(":")[0] == image["name"]]
    if not found:
        raise Misfit(f"no container has the image {image['name']}")
    for container in found:
        container["image"] = f"{image.get('newName', image['name'])}:{image['newTag']}"


def pod_of(one: Object) -> Object | None:
    """Return the specification of the pods that an object makes."""
    spec: Object = one.get("spec", {})
    if one["kind"] == "Pod":
        return spec
    template: Object = spec.get("template", {})
    return template.get("spec")


def containers(one: Object) -> list[Object]:
    pod = pod_of(one) or {}
    return [*pod.get("initContainers", []), *pod.get("containers", [])]
