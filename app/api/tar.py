"""A tar as it goes out: piece by piece, its length known before, the same bytes for the same members."""

from collections.abc import AsyncIterator, Sequence
from tarfile import BLOCKSIZE, GNU_FORMAT, TarInfo

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from app.builds.exporting import Member, close
from app.builds.parts import in_thread

PIECE = 1 << 20  # bytes read at once
END = bytes(2 * BLOCKSIZE)


class TarResponse(StreamingResponse):
    """Sends members and closes them, however it ends."""

    def __init__(self, members: Sequence[Member], filename: str) -> None:
        headers = {
            "content-length": str(tar_size(members)),
            "content-disposition": f'attachment; filename="{filename}"',
            "cache-control": "no-cache",
        }
        super().__init__(_pieces(members), 200, headers, "application/x-tar")
        self._members = members

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            close(self._members)


def tar_size(members: Sequence[Member]) -> int:
    return sum(len(_header(m)) + m.size + _padding(m.size) for m in members) + len(END)


async def _pieces(members: Sequence[Member]) -> AsyncIterator[bytes]:
    for member in members:
        yield _header(member)
        left = member.size
        while left:
            piece = await in_thread(lambda file=member.file, most=min(left, PIECE): file.read(most))  # type: ignore[misc]
            if not piece:
                raise OSError("a plan became shorter while it was sent")  # the connection is cut, and a client notices
            left -= len(piece)
            yield piece
        yield bytes(_padding(member.size))
    yield END


def _header(member: Member) -> bytes:
    """Nothing of this machine or this day is in it: owner 0, time 0, readable by all."""
    header = TarInfo(member.name)
    header.size = member.size
    return header.tobuf(GNU_FORMAT)


def _padding(size: int) -> int:
    return -size % BLOCKSIZE
