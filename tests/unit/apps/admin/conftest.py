"""A project, and a bare plane, for the admin shell."""

from collections.abc import Iterator

import pytest

from tests.support.admin_shells import Site, new_project
from tests.support.planes import operator_with_plane


@pytest.fixture
def project(tmp_path) -> Site:
    return new_project(tmp_path)


@pytest.fixture
def plane() -> Iterator[Site]:
    with operator_with_plane() as made:
        yield Site(made.base, made.plane)
