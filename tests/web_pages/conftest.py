"""A place in which an agent has worked, and a window of its console."""

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.console_pages import Page, opened, worked_place
from tests.support.mcp_servers import McpPlace


@pytest.fixture
def place(tmp_path: Path) -> McpPlace:
    return worked_place(tmp_path)


@pytest.fixture
def page(place: McpPlace) -> Generator[Page, None, None]:
    with opened(place) as found:
        yield found
