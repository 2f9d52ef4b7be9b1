"""What the launcher is told and answers, as bytes and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.sandbox.inside.protocol import EXITED, MEMORY, Base, CommandReport, Start

items = st.binary(max_size=30).map(lambda text: text.replace(b"\0", b""))
lists = st.lists(items, max_size=5)
numbers = st.integers(min_value=0, max_value=2**40)


def fields(record: object) -> dict[str, object]:
    return {name: getattr(record, name) for name in type(record).__annotations__}


@given(items, items, items, lists, lists, lists, numbers)
def test_a_base_comes_back_as_it_was(workspace, stage, hidden, readable, files, caches, number):
    base = Base(
        workspace=workspace,
        stage=stage,
        hidden=hidden,
        git=hidden,
        git_shown=stage,
        git_pointer=caches,
        home=b"/run/home",
        network=b"none",
        readable=readable,
        writable=[],
        links=[b"/bin", b"usr/bin"],
        files=files,
        caches=caches,
        processes=number,
        memory_mb=1,
        file_mb=2,
        cpu_s=3,
        literals=caches,
        known_hosts=stage,
        authorities=hidden,
    )

    assert fields(Base.decode(base.encode())) == fields(base)


@given(items, numbers, lists, lists)
def test_a_start_comes_back_as_it_was(directory, timeout_ms, argv, environment):
    start = Start(directory=directory, timeout_ms=timeout_ms, argv=argv, environment=environment)

    assert fields(Start.decode(start.encode())) == fields(start)


@given(st.sampled_from([EXITED, MEMORY]), numbers, numbers, items)
def test_a_report_comes_back_as_it_was(ending, status, survivors, where):
    report = CommandReport(
        ending, status=status, survivors=survivors, where=where, code=2, memory_kb=9
    )
    report.unreached = 5

    assert fields(CommandReport.decode(report.encode())) == fields(report)


@pytest.mark.parametrize("place", ["argv", "environment", "directory"])
def test_a_nul_is_refused_where_it_would_become_two_items(place: str):
    given_fields = {"directory": b"/", "argv": [b"a"], "environment": [b"A=b"]}
    given_fields[place] = b"a\0b" if place == "directory" else [b"a\0b"]

    with pytest.raises(ValueError, match="NUL"):
        Start(timeout_ms=1, **given_fields).encode()


@pytest.mark.parametrize("content", [b"", b"1", b"2\0a", b"x\0", b"1\0a\x001\0b\x005\0c", b"-1\0a"])
def test_other_bytes_are_no_order(content: bytes):
    with pytest.raises(ValueError, match="not an order|invalid literal"):
        Start.decode(content)
