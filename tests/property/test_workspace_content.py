"""Any bytes under any name: what was written is what is read."""

import hashlib
import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock import limits
from paddock.workspace import Workspace
from paddock.workspace.listing import list_directory
from paddock.workspace.read import WindowLine, whole_characters
from paddock.workspace.single_change import delete_entry, write_file
from paddock.workspace.workspace import Openat2Resolution, WalkResolution

NAMES = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="/"),
    min_size=1,
    max_size=60,
).filter(lambda name: name not in {".", ".."})
LINES = st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"")), max_size=30)


@pytest.fixture(scope="module", params=[Openat2Resolution, WalkResolution])
def workspace(request):
    with (
        tempfile.TemporaryDirectory(prefix="paddock-property-") as root,
        Workspace.open(root, request.param()) as workspace,
    ):
        yield workspace


@pytest.mark.needs("openat2")
@given(name=NAMES, folder=NAMES, content=st.binary(max_size=5000), newer=st.binary(max_size=5000))
def test_what_is_written_is_read_again(workspace, name, folder, content, newer):
    text = f"{folder}/{name}"
    for wanted in (content, newer):
        receipt = write_file(workspace, workspace.resolve_write(text), wanted)
        found = workspace.read_all(workspace.resolve_read(text), limits.content_bytes_max)
        version = "sha256:" + hashlib.sha256(wanted).hexdigest()
        assert (found, receipt.doing.after) == (wanted, version)
        assert receipt.doing.path == text
    assert [entry.path.name for entry in listed(workspace, folder)] == [name]
    delete_entry(workspace, workspace.resolve_entry(text))
    delete_entry(workspace, workspace.resolve_entry(folder))
    assert listed(workspace, ".") == ()


def listed(workspace, folder: str):
    return list_directory(workspace, workspace.resolve_read(folder), 1, 100).entries


@pytest.mark.needs("openat2")
@given(
    lines=LINES,
    closed=st.booleans(),
    first=st.integers(1, 35),
    count=st.integers(0, 35),
    bytes_max=st.integers(1, 60) | st.just(10_000),
)
def test_a_window_is_the_slice_of_all_lines_that_fits(
    workspace, lines, closed, first, count, bytes_max
):
    content = b"\n".join(lines) + b"\n" * (closed and bool(lines))
    expected = content.split(b"\n")
    if not expected[-1]:
        expected.pop()
    write_file(workspace, workspace.resolve_write("lines"), content)
    path = workspace.resolve_read("lines")
    with workspace.open_file(path) as file:
        window = file.window(first, count, bytes_max)
    delete_entry(workspace, workspace.resolve_entry("lines"))
    asked = expected[first - 1 : first - 1 + count]
    fitting = asked[:1]
    while len(fitting) < len(asked) and len(b"\n".join(asked[: len(fitting) + 1])) <= bytes_max:
        fitting = asked[: len(fitting) + 1]
    contents = list(fitting)
    if fitting and len(fitting[0]) > bytes_max:
        contents[0] = whole_characters(fitting[0][:bytes_max])
    assert window.lines == tuple(
        WindowLine(number, content, len(whole))
        for number, (content, whole) in enumerate(zip(contents, fitting, strict=True), first)
    )
    assert (window.lines_total, window.cut_by_bytes) == (len(expected), len(fitting) < len(asked))
