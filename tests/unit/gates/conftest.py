"""Planes that every gate passes, made once; each test spoils a copy of its own."""

import shutil

import pytest

from tests.support.gates import copies
from tests.support.planted import real_plane


@pytest.fixture(scope="session")
def copying():
    with copies() as copy:
        yield copy


@pytest.fixture
def plane(copying):
    made = copying()
    yield made
    shutil.rmtree(made.root)


@pytest.fixture(scope="session")
def only_real():
    with real_plane() as made:
        yield made


@pytest.fixture
def real(only_real):
    """A plane as an operator made it, at the place that its witness knows."""
    only_real.restore()
    return only_real
