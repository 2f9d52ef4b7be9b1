import pytest

from paddock import limits
from paddock.workspace.search.ripgrep import read_proposals

OUTPUT = b"./a\x001:x\n2:y\n\n./b\nc\x003:./d\x01e\n"


def read(output, sizes):
    pieces, at = [], 0
    while at < len(output):
        size = next(sizes)
        pieces.append(output[at : at + size])
        at += size
    return {proposal.path: proposal.rows for proposal in read_proposals(pieces)}


def every(size):
    while True:
        yield size


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 1000])
def test_files_and_rows_come_out_whole_however_the_output_is_cut(size):
    expected = {b"a": [b"1:x", b"2:y"], b"b\nc": [b"3:./d\x01e"]}
    assert read(OUTPUT, every(size)) == expected


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 1000])
@pytest.mark.parametrize("empty_line", [b"\n", b"\r\n"])
def test_a_file_ends_at_an_empty_line_be_it_lf_or_crlf(size, empty_line):
    output = empty_line.join([b"./a\x001:x\r\n2:\r\n3:y\n", b"./b\x001:z\r\n", b"./d\x007:\r\r\n"])
    found = read(output, every(size))
    assert found == {b"a": [b"1:x\r", b"2:\r", b"3:y"], b"b": [b"1:z\r"], b"d": [b"7:\r\r"]}


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
def test_a_row_may_hold_nul_bytes(size):
    output = b"./a\x001:x\x00y\n2:\x00\n\n./b\x001:\x00./c\x00\n"
    assert read(output, every(size)) == {b"a": [b"1:x\x00y", b"2:\x00"], b"b": [b"1:\x00./c\x00"]}


def test_the_last_file_has_the_rows_that_came():
    output = b"./a\x001:x\n\n./b\x001:y\n2:z\n3:cut sho"
    assert read(output, every(1000)) == {b"a": [b"1:x"], b"b": [b"1:y", b"2:z"]}
    assert read(output[:15], every(1000)) == {b"a": [b"1:x"], b"b": []}


@pytest.mark.parametrize("size", [1, 1000])
def test_a_warning_behind_the_rows_of_a_walk_is_set_aside(size):
    output = (
        b"./a\x001:x\n"
        b'./a: WARNING: stopped searching binary file after match (found "\\0" byte around '
        b"offset 9)\n\n./b\x001:y\n"
    )
    assert read(output, every(size)) == {b"a": [b"1:x"], b"b": [b"1:y"]}


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("name", [b"a\nb", b"a\n\n1:b", b"\n./c"])
def test_a_warning_is_no_row_though_the_name_holds_a_line_break(name, size):
    output = (
        b"./" + name + b"\x001:x\n./" + name + b": WARNING: stopped searching binary file after "
        b'match (found "\\0" byte around offset 9)\n\n./c\x001:y\n'
    )
    expected = {name: [b"1:x"], b"c": [b"1:y"]}
    assert read(output, every(size)) == expected


def test_a_line_of_any_length_costs_no_more_than_its_beginning():
    long = b"x" * 3_000_000
    output = b"./a\x001:" + long + b"\n2:short\n\n./b\x001:y\n"
    found = read(output, every(10_000))
    first, second = found[b"a"]
    assert limits.search_row_bytes_max <= len(first) < limits.search_row_bytes_max + 10_001
    assert first.startswith(b"1:xxx")
    assert second == b"2:short"
    assert found[b"b"] == [b"1:y"]
