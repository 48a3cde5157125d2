"""The usual way, to stand beside ours: `python -m benchmarks.usual PORT FOLDER`, FastAPI as its tutorial has it."""

import hashlib
import sys
from collections.abc import Callable
from pathlib import Path

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import FileResponse

from trtforge.contract.builds import Submit


def create(folder: Path) -> FastAPI:
    app = FastAPI()

    @app.get("/hello")
    async def hello() -> dict[str, str]:
        return {"hello": "world"}

    @app.post("/validate")
    async def validate(asked: Submit) -> dict[str, bool]:
        """Read and check a submit, and do nothing about it."""
        return {"valid": asked.spec is not None}

    @app.get("/plan")
    async def plan() -> FileResponse:
        return FileResponse(folder / "plan")

    @app.put("/written")
    async def written(request: Request) -> dict[str, int]:
        """Write on the loop as it comes."""
        return {"size": await _receive(request, folder / "written", lambda _: None)}

    @app.put("/hashed")
    async def hashed(request: Request) -> dict[str, str]:
        """Hash and write on the loop as it comes."""
        digest = hashlib.sha256()
        await _receive(request, folder / "hashed", digest.update)
        return {"digest": digest.hexdigest()}

    return app


async def _receive(request: Request, path: Path, take: Callable[[bytes], None]) -> int:
    size = 0
    with path.open("wb") as file:
        async for chunk in request.stream():
            take(chunk)
            size += file.write(chunk)
    return size


if __name__ == "__main__":
    uvicorn.run(create(Path(sys.argv[2])), host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
