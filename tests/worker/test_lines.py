"""Lines over a border: what is written is what is read, however the bytes are cut."""

import asyncio
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.worker.lines import MAX_LINE, TooLong, message_line, read_request, request_line
from app.worker.messages import BuildRequest, InspectRequest, Log, ProbeRequest, RefitRequest
from app.worker.pipes import Lines

_extents = st.lists(st.integers(-(2**62), 2**62), max_size=8)
_range = st.fixed_dictionaries({"min": _extents, "opt": _extents, "max": _extents, "values": st.booleans()})
_requests = st.one_of(
    st.builds(BuildRequest, profiles=st.lists(st.dictionaries(st.text(), _range, max_size=2), max_size=2)),
    st.builds(RefitRequest, figures=st.dictionaries(st.text(), st.integers() | st.none(), max_size=3)),
    st.builds(InspectRequest),
    st.builds(ProbeRequest),
)


@given(_requests)
def test_a_request_survives_its_line(request_):
    line = request_line(request_)
    assert line.count(b"\n") == 1
    assert read_request(line) == request_


@pytest.mark.parametrize(
    "line", [b"", b"[]", b"{}", b'{"kind":"other"}', b'{"kind":"probe"}', b'{"kind":"probe","x":1}']
)
def test_what_is_no_request_is_an_error(line):
    with pytest.raises((ValueError, KeyError, TypeError, AttributeError)):
        read_request(line)


def test_a_message_that_would_be_given_up_is_not_written():
    assert len(message_line(Log("error", "x" * (MAX_LINE - 100)))) <= MAX_LINE
    with pytest.raises(TooLong):
        message_line(Log("error", "x" * MAX_LINE))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.binary(max_size=20).map(lambda b: b.replace(b"\n", b"")), max_size=20), st.data())
def test_lines_are_the_same_however_they_are_cut(lines, data):
    stream = b"".join(line + b"\n" for line in lines) + data.draw(st.sampled_from([b"", b"cut off"]))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))

    async def main():
        read, write = os.pipe()
        arriving = Lines(read)
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
            os.write(write, stream[start:end])
            await asyncio.sleep(0)
        os.close(write)
        return [line async for line in arriving]

    assert asyncio.run(main()) == lines
