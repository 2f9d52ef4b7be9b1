"""A console on a project of its own, for all tests of a module."""

from collections.abc import Iterator

import pytest

from tests.support.consoles import ConsoleServer, console_place, serving
from tests.support.mcp_servers import McpPlace


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> McpPlace:
    return console_place(tmp_path_factory.mktemp("console"))


@pytest.fixture(scope="module")
def console(place: McpPlace) -> Iterator[ConsoleServer]:
    with serving(place) as running:
        yield running
