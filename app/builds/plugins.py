"""The operator's list of plugin libraries. Clients say names; no path of theirs is ever opened.

    plugins:
      deformable:
        path: libdeformable.so    # beside this file, or absolute
        sha256: 5d41…             # of the library
        creators: [DeformableAttention]

A library is copied into the folder of each child that needs it and hashed on the way; the child hashes the copy again,
through the descriptor that it loads it from.
"""

import errno
import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from app.errors import NotReady
from trtforge.contract.spec import PluginName


class PluginUnusable(Exception):
    """A library that a build needs is not there, or not the one that was approved. The message has no path."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"The plugin library {name} {why}.")
        self.name = name


class Approved(BaseModel):
    """One library on the list."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    path: Path
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    creators: tuple[str, ...] = ()  # names of the creators that it must bring

    @property
    def digest(self) -> str:
        return f"sha256:{self.sha256}"


class _List(BaseModel):
    model_config = ConfigDict(extra="forbid")
    plugins: dict[PluginName, Approved]


class Plugins:
    """The libraries that are approved in this process."""

    def __init__(self, approved: Mapping[str, Approved] | None = None) -> None:
        self._approved = dict(approved or {})

    @classmethod
    def read(cls, path: Path | None) -> "Plugins":
        """Read the list at `path` and look at each library once. Raises `NotReady` with what to mend."""
        if path is None:
            return cls()
        try:
            listed = TypeAdapter(_List).validate_python(yaml.safe_load(_read_text(path))).plugins
        except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
            raise NotReady(f"TRTFORGE_PLUGINS={path} cannot be used: {error}") from error
        approved = {name: one.model_copy(update={"path": path.parent / one.path}) for name, one in listed.items()}
        for name, one in approved.items():
            try:
                with open(one.path, "rb", opener=_plain) as file:
                    found = hashlib.file_digest(file, "sha256").hexdigest()
            except OSError as error:
                raise NotReady(f"TRTFORGE_PLUGINS: {name} cannot be read: {error}") from error
            if found != one.sha256:
                raise NotReady(
                    f"TRTFORGE_PLUGINS: {name} is {found}, not {one.sha256}. Approve it anew, or restore it."
                )
        return cls(approved)

    @property
    def digests(self) -> dict[str, str]:
        """The capability table's account: name → digest."""
        return {name: one.digest for name, one in sorted(self._approved.items())}

    def lay_out(self, wanted: Sequence[Mapping[str, Any]] | None, folder: Path) -> list[dict[str, Any]]:
        """Put a copy of each library that an effective spec names into `folder`; return what a child needs to load them.

        Raises `PluginUnusable` when one is not here as it was when the key was made.
        """
        return [self._lay(plugin["name"], plugin["digest"], folder) for plugin in wanted or ()]

    def _lay(self, name: str, digest: str | None, folder: Path) -> dict[str, Any]:
        one = self._approved.get(name)
        if one is None or one.digest != digest:
            raise PluginUnusable(name, "is not approved on this worker with the digest of the engine key")
        copy = folder / f"{secrets.token_hex(16)}.so"  # beside the model's files, which have names of their own
        try:
            with open(one.path, "rb", opener=_plain) as source, open(copy, "xb", opener=_private) as goal:
                shutil.copyfileobj(source, goal)
            with copy.open("rb") as file:
                found = "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise PluginUnusable(name, f"cannot be copied ({error.strerror})") from error
        if found != digest:
            raise PluginUnusable(name, f"has changed since it was approved: it is {found}")
        return {"name": name, "file": copy.name, "digest": digest, "creators": list(one.creators)}


def _read_text(path: Path) -> str:
    with open(path, encoding="utf-8", opener=_plain) as file:
        return file.read()


def _plain(path: str, flags: int) -> int:
    """Open a regular file, and never wait for one: a pipe would hold whoever opens it until somebody writes."""
    fd = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is no regular file")
    return fd


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
