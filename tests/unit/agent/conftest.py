"""A room for one agent."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.agents import Room, new_room


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    with new_room(tmp_path) as made:
        yield made
