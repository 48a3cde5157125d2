"""The stream parser against the rules of the WHATWG standard, in any chunking."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trtforge.sse import Frame, Parser, frames

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no failure


def read(*pieces: bytes) -> list[Frame]:
    return list(frames(pieces))


def test_fields_of_one_event():
    assert read(b"id: 7\nevent: phase\ndata: {}\n\n") == [Frame("phase", "7", "{}")]


def test_data_lines_join_and_one_space_goes():
    assert read(b"data: a\ndata:b\ndata:  c\n\n") == [Frame("message", "", "a\nb\n c")]


def test_all_three_line_ends():
    assert read(b"data: 1\n\ndata: 2\r\rdata: 3\r\n\r\n") == [Frame("message", "", n) for n in "123"]


def test_an_event_without_its_blank_line_is_discarded():
    assert read(b"data: whole\n\ndata: cut\n") == [Frame("message", "", "whole")]


def test_comments_unknown_fields_and_empty_events_are_nothing():
    assert read(b": ping\n\nfoo: x\nevent: lost\n\ndata\n\n") == [Frame("message", "", "")]


def test_id_stays_until_another_and_one_with_null_is_ignored():
    assert [f.id for f in read(b"id: 1\ndata: a\n\ndata: b\n\nid: 2\x003\ndata: c\n\nid\ndata: d\n\n")] == [
        "1",
        "1",
        "1",
        "",
    ]


def test_retry_takes_digits_only():
    parser = Parser()
    assert list(parser.feed(b"retry: 2000\nretry: 1.5\nretry: -3\n\n")) == []
    assert parser.retry_ms == 2000


def test_byte_order_mark_only_at_the_start():
    assert read("\ufeffdata: a\n\n\ufeffdata: b\n\n".encode()) == [Frame("message", "", "a")]


def test_bad_utf8_is_replaced_not_fatal():
    assert read(b"data: \xff\n\n") == [Frame("message", "", "\ufffd")]


line = st.one_of(
    st.sampled_from(["", "", "data", "data: x", "data:y", "id: 3", "id:", "event: e", ": note", "retry: 5"]),
    st.text(alphabet=st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=8),
)
stream = st.lists(st.tuples(line, st.sampled_from(["\n", "\r", "\r\n"])), max_size=20).map(
    lambda parts: "".join(text + end for text, end in parts).encode()
)


@patient
@given(stream, st.data())
def test_any_chunking_gives_the_same_events(raw: bytes, data: st.DataObject):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=12)))
    pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    assert read(*pieces) == read(raw) == read(*(raw[i : i + 1] for i in range(len(raw))))


@patient
@given(stream)
def test_what_is_read_is_what_a_reader_of_whole_lines_reads(raw: bytes):
    assert [f.data for f in read(raw)] == list(by_the_book(raw.decode()))


def by_the_book(text: str):
    """Read line by line, with the whole stream at hand: the standard's own order of steps."""
    text = text.removeprefix("\ufeff")
    data: list[str] = []
    whole = text.replace("\r\n", "\n").replace("\r", "\n").rpartition("\n")[0]
    for one in whole.split("\n"):
        if not one:
            if data:
                yield "\n".join(data)
            data = []
        elif one == "data" or one.startswith("data:"):
            data.append(one[5:].removeprefix(" "))
