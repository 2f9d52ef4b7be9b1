"""A console in a real browser, on a project in which an agent has worked."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from tests.support.browsers import Tab, open_tab
from tests.support.consoles import ConsoleServer, console_place, make_call, serving
from tests.support.mcp_servers import McpPlace

POLICY = """
[profiles.standard]
allow = ["tool:file:*", "tool:search:*"]
ask = ["tool:file:create asked/**"]
deny = ["tool:file:delete"]
"""


class Page(Struct, frozen=True):
    place: McpPlace
    server: ConsoleServer
    tab: Tab

    def open(self, path: str) -> Tab:
        self.tab.go(f"{self.server.origin}{path}")
        return self.tab

    @contextmanager
    def another(self, path: str, width: int = 1440) -> Generator[Tab]:
        """A second window, which is let in by the token of the first."""
        with open_tab(width) as tab:
            _let_in(tab, self.server)
            tab.go(f"{self.server.origin}{path}")
            yield tab


def _let_in(tab: Tab, server: ConsoleServer) -> None:
    tab.go(f"{server.origin}/static/icon.svg")
    tab.run(f"sessionStorage.setItem('paddock.token', '{server.token}')")


@contextmanager
def opened(place: McpPlace, *options: str, width: int = 1440) -> Generator[Page]:
    with serving(place, *options) as server, open_tab(width) as tab:
        _let_in(tab, server)
        yield Page(place, server, tab)


def worked_place(base: Path) -> McpPlace:
    """Somewhere with a file that was made and changed, a question, and a refusal."""
    made = console_place(base, POLICY)
    make_call(made, "create_file", path="notes.md", content="one\ntwo\nthree\n")
    make_call(made, "str_replace", path="notes.md", old_str="two", new_str="2")
    make_call(made, "create_file", path="asked/guide.md", content="# Guide\n")
    make_call(made, "create_file", path=".git/hooks/pre-commit", content="#!/bin/sh\n")
    return made
