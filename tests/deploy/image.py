"""The steps of the Dockerfile's default target, run in an empty folder instead of an image: `make image`."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("/opt/trtforge", "/src", "/data")  # of the image; each lies under the scratch folder here
STEP_S = 600.0
USER = 10001  # of the image
LOCKED = "--require-hashes"


@dataclass(frozen=True)
class Step:
    word: str  # RUN, COPY, …
    rest: str


@dataclass
class Stage:
    name: str
    base: str
    steps: list[Step] = field(default_factory=list)


def _python() -> tuple[str, int]:
    """Return an interpreter of this version and who can run it: the image's user, when we may become it."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, f"/usr/bin/{version}", f"/usr/local/bin/{version}"):
        if os.getuid() == 0 and shutil.which(python):
            try:
                code = f"import sys; sys.path.append({sysconfig.get_path('purelib')!r}); import fastapi"
                subprocess.run([python, "-c", code], user=USER, check=True, capture_output=True, cwd="/", timeout=60)
            except (OSError, subprocess.CalledProcessError):
                continue
            return python, USER
    return sys.executable, os.getuid()


def stages(text: str) -> dict[str, Stage]:
    """Return the stages of a Dockerfile by name, with their steps in order."""
    found: dict[str, Stage] = {}
    for line in re.sub(r"\\\n", " ", text).splitlines():
        word, _, rest = line.strip().partition(" ")
        if word == "FROM":
            base, _, name = rest.split()
            found[name] = Stage(name, base)
        elif word.isupper() and word != "ARG":
            list(found.values())[-1].steps.append(Step(word, rest.strip()))
    return found


class Image:
    """The default target in a folder. `borrow`: take the locked packages from this interpreter instead of the registry."""

    def __init__(self, scratch: Path, borrow: bool) -> None:
        self.scratch, self.borrow = scratch, borrow
        self.env: dict[str, str] = {}
        self.python, self.runs_as = _python()
        self.user = -1
        self.words: dict[str, list[str]] = {}  # ENTRYPOINT, CMD, HEALTHCHECK
        self.stop_signal = ""
        self._all = stages((ROOT / "Dockerfile").read_text())
        self._cwd = scratch

    def make(self) -> "Image":
        target = list(self._all.values())[-1]
        sources = [step.rest.split()[0].removeprefix("--from=") for step in target.steps if "--from=" in step.rest]
        for source in sources:
            self._run(self._all[source])
        self._keep(target)
        self._run(target)
        return self

    def _run(self, stage: Stage) -> None:
        self._cwd = self.scratch
        for step in stage.steps:
            match step.word:
                case "WORKDIR":
                    self._cwd = self.path(step.rest)
                    self._cwd.mkdir(parents=True, exist_ok=True)
                case "COPY":
                    self._copy(step.rest.split())
                case "RUN":
                    self._shell(step.rest)
                case "ENV":
                    self.env |= dict(word.split("=", 1) for word in shlex.split(step.rest))
                case "USER":
                    self.user = int(step.rest.split(":")[0])
                case "STOPSIGNAL":
                    self.stop_signal = step.rest
                case "ENTRYPOINT" | "CMD":
                    self.words[step.word] = self._exec_form(step.rest)
                case "HEALTHCHECK":
                    self.words[step.word] = self._exec_form(step.rest.partition("CMD ")[2])
                case "VOLUME" | "EXPOSE":
                    pass
                case other:
                    raise AssertionError(f"{other} is not known here")

    def path(self, path: str) -> Path:
        return self.scratch / path.lstrip("/")

    def _here(self, text: str) -> str:
        """Move the image's folders under the scratch folder."""
        return re.sub(rf"(?<![\w/])({'|'.join(FOLDERS)})\b", lambda m: f"{self.scratch}{m[1]}", text)

    def _exec_form(self, text: str) -> list[str]:
        return [self._here(word) for word in json.loads(text)]

    def _copy(self, words: list[str]) -> None:
        if words[0].startswith("--from="):
            assert words[1] == words[2], "other stages are copied to where they were"
            assert self.path(words[1]).is_dir()
            return
        *sources, goal = words
        for source in sources:
            there, here = self._cwd / goal, ROOT / source
            if here.is_dir():
                ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", "dist")
                shutil.copytree(here, there, ignore=ignored)
            else:
                shutil.copyfile(here, there / here.name)

    def _shell(self, command: str) -> None:
        borrowed = (
            next(iter(self.scratch.glob("opt/trtforge/lib/python*/site-packages")), self.scratch) / "zz_borrowed.pth"
        )
        if self.borrow and LOCKED in command:
            borrowed.write_text(sysconfig.get_path("purelib") + "\n")
            return
        uninstall = "pip uninstall" in command
        if uninstall:  # what is borrowed is not ours to remove
            borrowed.unlink(missing_ok=True)
        command = re.sub(r"^python ", f"{self.python} ", self._here(command))
        if os.getuid() != 0:
            command = command.replace("10001", str(os.getuid()))
        env = {"PATH": os.environ["PATH"], "HOME": str(self.scratch)}
        env |= {k: v for k, v in os.environ.items() if k.startswith("PIP_")}
        done = subprocess.run(
            ["sh", "-ec", command], cwd=self._cwd, env=env, capture_output=True, text=True, timeout=STEP_S
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        if uninstall and self.borrow:
            borrowed.write_text(sysconfig.get_path("purelib") + "\n")

    def _keep(self, target: Stage) -> None:
        """Leave what the target copies from other stages, as an image does, and nothing else."""
        kept = {self.path(s.rest.split()[1]) for s in target.steps if s.word == "COPY" and "--from=" in s.rest}
        for path in list(_children(self.scratch, kept)):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _children(folder: Path, kept: set[Path]) -> Iterator[Path]:
    for path in folder.iterdir():
        if path in kept:
            continue
        if any(k.is_relative_to(path) for k in kept):
            yield from _children(path, kept)
        else:
            yield path
