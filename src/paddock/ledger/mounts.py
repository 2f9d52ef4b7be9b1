"""Which file system a directory lies on, and whether a ledger may live there.

On a network file system locks are advisory between hosts at best, a page cache
is not shared, and a successful sync says little: appends would be lost. Such
file systems are refused by their type in mountinfo (proc_pid_mountinfo(5)),
found by device number, so that no name has to be resolved again.
"""

from typing import Final

from paddock.errors import HostError

NETWORK_FILE_SYSTEMS: Final = frozenset(
    {
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "fuse.ceph",
        "fuse.davfs2",
        "fuse.gcsfuse",
        "fuse.glusterfs",
        "fuse.juicefs",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.sshfs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "panfs",
        "smb3",
        "smbfs",
    }
)


def find_file_system(mountinfo: str, major: int, minor: int) -> str | None:
    """Return the type of the file system with this device number, if it is mounted."""
    wanted = f"{major}:{minor}"
    for line in mountinfo.splitlines():
        fields = line.split(" ")
        if len(fields) > 6 and fields[2] == wanted and "-" in fields[6:]:
            after = fields[fields.index("-", 6) + 1 :]
            return after[0] if after else None
    return None


def verify_local(mountinfo: str, major: int, minor: int, path: str) -> None:
    """Refuse a network file system.

    What mountinfo does not list (another system than Linux, a subvolume with a
    device number of its own) counts as local: no network file system hides so.

    Raises:
        HostError: the device is a network file system's.
    """
    found = find_file_system(mountinfo, major, minor)
    if found in NETWORK_FILE_SYSTEMS:
        raise HostError(
            f"a ledger cannot live on a network file system ({found})",
            where=ascii(path),
            hint="put the plane on a local disk",
        )
