"""A store in every test, on a disk with O_TMPFILE and on one without."""

from pathlib import Path

import pytest

from paddock.storage.disk import Disk
from paddock.storage.objects import ObjectStore
from tests.support.disks import NamedOnlyDisk

BYTES_MAX = 1_000_000


@pytest.fixture(params=[Disk, NamedOnlyDisk], ids=["whole", "named-only"])
def disk(request):
    return request.param()


@pytest.fixture
def place(tmp_path) -> Path:
    return tmp_path / "objects"


@pytest.fixture
def store(place, disk):
    with ObjectStore(str(place), bytes_max=BYTES_MAX, disk=disk) as store:
        assert store.incoming_fd >= 0  # so it is made
        yield store
