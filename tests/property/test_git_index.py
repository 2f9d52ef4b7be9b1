"""No bytes keep the reader of an index from answering, and no part of an index is one."""

import hashlib
import struct

from hypothesis import given
from hypothesis import strategies as st

from paddock.sandbox.git.index import is_harmless_index
from paddock.sandbox.git.objects import SHA1_BYTES

PARTS = ("a", "b", "src", ".git", ".gitx", "GIT~1", "..", ".", "", ".git ", "\u200c.git")
names = st.lists(st.sampled_from(PARTS), min_size=1, max_size=4).map("/".join)
FORBIDDEN = {".git", "GIT~1", "..", ".", "", ".git ", "\u200c.git"}


def summed(content: bytes) -> bytes:
    return content + hashlib.sha1(content).digest()


def entry(name: bytes) -> bytes:
    head = bytes(24) + (0o100644).to_bytes(4, "big") + bytes(32) + struct.pack(">H", len(name))
    return (head + name).ljust((len(head) + len(name) + 8) // 8 * 8, b"\0")


def index_of(paths: list[str], *extensions: bytes) -> bytes:
    header = struct.pack(">4sII", b"DIRC", 2, len(paths))
    return summed(header + b"".join(entry(path.encode()) for path in paths) + b"".join(extensions))


@given(st.lists(names, max_size=4))
def test_an_index_is_accepted_where_every_component_is_a_name_of_the_work_tree(paths):
    is_fine = all(FORBIDDEN.isdisjoint(path.split("/")) for path in paths)
    assert is_harmless_index(index_of(paths), SHA1_BYTES) is is_fine


@given(st.lists(names, max_size=3), st.binary(max_size=30), st.data())
def test_no_part_of_an_index_is_one(paths, content, data):
    extension = b"UNTR" + len(content).to_bytes(4, "big") + content
    whole = index_of(paths, extension)
    size = data.draw(st.integers(0, len(whole) - 1))
    assert not is_harmless_index(whole[:size], SHA1_BYTES)


@given(
    st.sampled_from((2, 3, 4)),
    st.integers(0, 4) | st.just(0xFFFFFFFF),
    st.lists(names, max_size=3),
    st.binary(max_size=90),
    st.data(),
)
def test_any_bytes_have_an_answer(version, count, paths, rest, data):
    body = bytearray(b"".join(entry(path.encode()) for path in paths) + rest)
    for _ in range(min(len(body), 3)):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    content = summed(struct.pack(">4sII", b"DIRC", version, count) + bytes(body))
    assert is_harmless_index(content, SHA1_BYTES) in (True, False)
