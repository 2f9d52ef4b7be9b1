"""One plane that every gate passes, made once; each test spoils a copy of its own."""

import shutil

import pytest

from tests.support.gates import copies


@pytest.fixture(scope="session")
def copying():
    with copies() as copy:
        yield copy


@pytest.fixture
def plane(copying):
    made = copying()
    yield made
    shutil.rmtree(made.root)
