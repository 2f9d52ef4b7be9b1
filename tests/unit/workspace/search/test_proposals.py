import pytest

from paddock import limits
from paddock.workspace.search.proposals import ProposalReader

OUTPUT = b"./a\x001:x\n2:y\n\n./b\nc\x003:./d\x01e\n"


def read(output, sizes, known=None):
    reader = ProposalReader(known)
    found = {}
    at = 0
    while at < len(output):
        size = next(sizes)
        for proposal in reader.feed(output[at : at + size]):
            found.setdefault(proposal.path, []).extend(proposal.rows)
        at += size
    reader.close()
    return found, reader.binary


def every(size):
    while True:
        yield size


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 1000])
def test_files_and_rows_come_out_whole_however_the_output_is_cut(size):
    expected = {b"a": [b"1:x", b"2:y"], b"b\nc": [b"3:./d\x01e"]}
    assert read(OUTPUT, every(size)) == (expected, [])


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 1000])
@pytest.mark.parametrize("empty_line", [b"\n", b"\r\n"])
def test_a_file_ends_at_an_empty_line_be_it_lf_or_crlf(size, empty_line):
    said = b'./c: binary file matches (found "\\0" byte around offset 2)\n'
    output = empty_line.join(
        [b"./a\x001:x\r\n2:\r\n3:y\n", b"./b\x001:z\r\n", said, b"./d\x007:\r\r\n"]
    )
    found, binary = read(output, every(size), {b"./a", b"./b", b"./c", b"./d"})
    assert found == {b"a": [b"1:x\r", b"2:\r", b"3:y"], b"b": [b"1:z\r"], b"d": [b"7:\r\r"]}
    assert binary == [b"c"]


@pytest.mark.parametrize("size", [1, 4, 1000])
def test_what_is_said_of_binary_files_is_no_row_and_no_path(size):
    output = (
        b'./bin: binary file matches (found "\\0" byte around offset 1)\n\n'
        b"./a\x001:x\n"
        b'./a: binary file matches (found "\\0" byte around offset 9)\n\n'
        b"./b\x001:y\n\n"
        b'./c: binary file matches (found "\\0" byte around offset 2)\n'
    )
    known = {b"./bin", b"./a", b"./b", b"./c"}
    found, binary = read(output, every(size), known)
    assert found == {b"a": [b"1:x"], b"b": [b"1:y"]}
    assert binary == [b"bin", b"a", b"c"]


def test_a_binary_file_is_told_though_its_name_holds_a_line_break():
    name = b"./new\nline"
    said = name + b': binary file matches (found "\\0" byte around offset 1)\n\n'
    found, binary = read(said + said + b"./c\x001:y\n", every(1000), {name, b"./c"})
    assert (found, binary) == ({b"c": [b"1:y"]}, [name[2:], name[2:]])


SAID = b': binary file matches (found "\\0" byte around offset 1)\n'
ODD_NAMES = [b"./new\nline", b"./new\n7:row", b"./new\n\nempty", b"./new\n./new", b"./.\n"]


@pytest.mark.parametrize("size", [1, 2, 5, 11, 1000])
def test_every_binary_file_is_told_whatever_stands_before_and_behind_it(size):
    names = [b"./a", b"./b", b"./c", *ODD_NAMES]
    words = b"".join(name + SAID for name in names)
    output = b"./x\x001:./one\n2:y\n" + words + b"\n./y\x003:z\n" + words + b"\n" + words
    known = {*names, b"./x", b"./y"}
    found, binary = read(output, every(size), known)
    assert found == {b"x": [b"1:./one", b"2:y"], b"y": [b"3:z"]}
    assert binary == [name[2:] for name in names] * 2 + [name[2:] for name in names]


def test_words_about_a_great_many_binary_files_cost_in_proportion():
    names = [b"./%s/%d" % (b"d" * 60, number) for number in range(20_000)]
    output = b"".join(name + SAID for name in names) + b"\n./y\x003:z\n"
    found, binary = read(output, every(65_536), {*names, b"./y"})
    assert (found, binary) == ({b"y": [b"3:z"]}, [name[2:] for name in names])


def test_a_name_that_looks_like_what_is_said_of_a_binary_file_hides_no_other():
    name = b"./a: binary file matches (found \nb"
    output = name + b': binary file matches (found "\\0" byte around offset 1)\n\n./c\x001:y\n'
    found, binary = read(output, every(1000), {name, b"./c", b"./a"})
    assert found == {b"c": [b"1:y"]}
    assert binary == [b"a"]


@pytest.mark.parametrize("size", [1, 1000])
def test_a_warning_behind_the_rows_of_a_walk_is_set_aside(size):
    output = (
        b"./a\x001:x\n"
        b'./a: WARNING: stopped searching binary file after match (found "\\0" byte around '
        b"offset 9)\n\n./b\x001:y\n"
    )
    assert read(output, every(size)) == ({b"a": [b"1:x"], b"b": [b"1:y"]}, [b"a"])


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("name", [b"a\nb", b"a\n\n1:b", b"\n./c"])
def test_a_warning_is_no_row_though_the_name_holds_a_line_break(name, size):
    output = (
        b"./" + name + b"\x001:x\n./" + name + b": WARNING: stopped searching binary file after "
        b'match (found "\\0" byte around offset 9)\n\n./c\x001:y\n'
    )
    expected = {name: [b"1:x"], b"c": [b"1:y"]}
    assert read(output, every(size)) == (expected, [name])


def test_a_line_of_any_length_costs_no_more_than_its_beginning():
    long = b"x" * 3_000_000
    output = b"./a\x001:" + long + b"\n2:short\n\n./b\x001:y\n"
    found, _ = read(output, every(10_000))
    first, second = found[b"a"]
    assert limits.search_row_bytes_max <= len(first) < limits.search_row_bytes_max + 10_001
    assert first.startswith(b"1:xxx")
    assert second == b"2:short"
    assert found[b"b"] == [b"1:y"]
