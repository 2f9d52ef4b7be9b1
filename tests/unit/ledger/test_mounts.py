import pytest

from paddock.errors import HostError
from paddock.ledger.files import NETWORK_FILE_SYSTEMS, find_file_system, verify_local

MOUNTINFO = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 27 0:45 / /home/a\\040b rw,relatime shared:2 master:3 - nfs4 server:/x rw
31 27 0:46 / /mnt/- rw - fuse.sshfs user@host:/ rw
broken line
"""


@pytest.mark.parametrize(
    ("major", "minor", "found"),
    [(254, 0, "ext4"), (0, 45, "nfs4"), (0, 46, "fuse.sshfs"), (0, 21, "proc"), (9, 9, None)],
)
def test_a_file_system_is_found_by_its_device_number(major, minor, found):
    assert find_file_system(MOUNTINFO, major, minor) == found


def test_a_local_file_system_is_accepted_and_a_network_one_refused():
    verify_local(MOUNTINFO, 254, 0, "/x")
    verify_local("", 254, 0, "/x")

    with pytest.raises(HostError, match=r"network file system \(nfs4\)"):
        verify_local(MOUNTINFO, 0, 45, "/x")


@pytest.mark.parametrize("name", sorted(NETWORK_FILE_SYSTEMS))
def test_every_network_file_system_is_refused(name):
    with pytest.raises(HostError, match=name):
        verify_local(f"1 2 0:1 / /x rw - {name} source rw", 0, 1, "/x")


@pytest.mark.parametrize("text", ["-", " - ", "1 2 0:1 / /x rw -", "1 2 0:1 - - - - -", "\0"])
def test_text_that_is_no_mountinfo_finds_nothing(text):
    assert find_file_system(text, 0, 1) in {None, "-"}
