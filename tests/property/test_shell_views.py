"""A command that goes on running and a tool beside it, in any order: nothing is lost, nothing half."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from tests.support.shells import Background, a_terminal, start

pytestmark = [pytest.mark.needs("stage"), pytest.mark.needs("bash")]

ACTS = st.lists(
    st.sampled_from(["tool writes", "tool deletes", "writes", "deletes", "sync"]),
    min_size=1,
    max_size=8,
)


class Expected(Struct):
    """What has to stand in the workspace, and in the view of the command; None: nothing."""

    host: str | None = "0\n"
    view: str | None = "0\n"
    base: str | None = "0\n"
    """What stood in the workspace when it was shown to the command, or landed."""
    is_own: bool = False
    """Whether the command changed it since."""

    def tool(self, content: str | None) -> None:
        self.host = content
        if not self.is_own or self.view == content:
            self.view = self.base = content
            self.is_own = False

    def command(self, content: str | None) -> None:
        if (self.view, content) != (None, None):
            self.view, self.is_own = content, True

    def land(self) -> None:
        if self.is_own and self.host in (self.base, self.view):
            self.host = self.base = self.view
            self.is_own = False


def do(act: str, number: int, process: Background, expected: Expected) -> None:
    content = f"{number}\n"
    terminal = process.terminal
    if act == "tool writes":
        terminal.call("create_file", path="f", content=content)
        expected.tool(content)
    elif act == "tool deletes":
        if terminal.call("delete_file", path="f").refusal is None:
            expected.tool(None)
    elif act == "writes":
        process.type(f"echo {number} > f; echo did-{number}\n").until(f"did-{number}\n")
        expected.command(content)
    elif act == "deletes":
        process.type(f"rm -f f; echo did-{number}\n").until(f"did-{number}\n")
        expected.command(None)
    else:
        process.sync()
        expected.land()


@settings(max_examples=12, deadline=None)
@given(ACTS)
def test_any_order_of_two_writers_comes_to_what_the_order_says(acts: list[str]):
    expected = Expected()
    with tempfile.TemporaryDirectory() as place, a_terminal(Path(place)) as terminal:
        terminal.yard.write({"f": "0\n"})
        file = terminal.yard.root / "f"
        process = start(terminal, "bash")

        for number, act in enumerate(acts, 1):
            do(act, number, process, expected)
            assert (file.read_text() if file.exists() else None) == expected.host, act
            process.type(f"cat f; echo seen-{number}\n").until(f"seen-{number}\n")
            seen = process.said.rpartition(f"seen-{number}\n")[0]
            if expected.view is not None:
                assert seen.endswith(expected.view), act
        process.stop()
        expected.land()

        assert (file.read_text() if file.exists() else None) == expected.host
