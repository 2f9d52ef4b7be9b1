"""A client in front of a project with links that lead everywhere."""

from collections.abc import Iterator

import pytest

from tests.support.hooks import Client
from tests.support.places import new_place


@pytest.fixture
def client() -> Iterator[Client]:
    with new_place() as place:
        made = Client(place)
        # What is confined is in no need of being read; see `test_confined`.
        made.reads_commands()
        yield made
