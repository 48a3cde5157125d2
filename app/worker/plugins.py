"""In a child: load plugin libraries of the operator's list, each through the descriptor whose bytes were hashed."""

import hashlib
import os
from collections.abc import Sequence
from typing import Any

from app.worker.messages import BuildRequest


class Unusable(Exception):
    """A library is not what was approved, or does not bring what it should."""

    def __init__(self, plugin: str, why: str) -> None:
        super().__init__(f"The plugin library {plugin} {why}.")
        self.plugin = plugin


def load(trt: Any, plugins: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Load each of `plugins` (name, file in this folder, digest, creators) for the life of this process.

    Returns name, digest and the creators that each has brought, with their versions. Raises `Unusable`.
    """
    return [_load(trt.get_plugin_registry(), plugin) for plugin in plugins]


def files_to_serialize(request: BuildRequest) -> dict[str, list[str]]:
    """Return the option `plugins_to_serialize` with files in place of names; empty where it is not asked for."""
    files = {plugin["name"]: f"./{plugin['file']}" for plugin in request.plugins}
    names = request.options.get("plugins_to_serialize")
    return {"plugins_to_serialize": [files[name] for name in names]} if names else {}


def _load(registry: Any, plugin: dict[str, Any]) -> dict[str, Any]:
    name = plugin["name"]
    fd = os.open(plugin["file"], os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)  # stays open: the path below names it
    with os.fdopen(fd, "rb", closefd=False) as file:
        found = "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
    if found != plugin["digest"]:
        raise Unusable(name, f"is {found}, not {plugin['digest']} as approved")
    before = _creators(registry)
    if registry.load_library(f"/proc/self/fd/{fd}") is None:
        raise Unusable(name, "does not load")
    brought = [one for one in _creators(registry) if one not in before]
    if missing := sorted(set(plugin["creators"]) - {one["name"] for one in brought}):
        raise Unusable(name, f"does not bring {', '.join(missing)}")
    return {"name": name, "digest": found, "creators": brought}


def _creators(registry: Any) -> list[dict[str, str]]:
    creators = registry.all_creators
    found = ((creator.name, creator.plugin_version, creator.plugin_namespace) for creator in creators)
    return [{"name": name, "version": version, "namespace": space} for name, version, space in sorted(found)]
