"""What survives a write, and what must not."""

import os
import stat
import subprocess

import pytest

from paddock.errors import ReadOnlyPathError
from paddock.workspace import Workspace
from paddock.workspace.read import Pieces
from paddock.workspace.single_change import edit_file, write_file
from tests.support.disks import DISKS
from tests.support.users import give_to_plain_user, plain_ids, run_as_plain_user

NEW = b"new\n"


class Whole:
    def apply(self, content: bytes) -> Pieces:
        return (NEW,)


@pytest.fixture(params=DISKS.values(), ids=DISKS.keys())
def filled(ground, request):
    (ground.root / "dir").mkdir()
    (ground.root / "dir/file").write_bytes(b"old\n")
    with Workspace.open(
        str(ground.root), ground.workspace.resolution, request.param()
    ) as workspace:
        ground.workspace = workspace
        yield ground


def write(workspace: Workspace, name: str = "dir/file"):
    return write_file(workspace, workspace.resolve_write(name), NEW)


def edit(workspace: Workspace, name: str = "dir/file"):
    return edit_file(workspace, workspace.resolve_write(name), Whole())


@pytest.mark.parametrize("act", [write, edit])
@pytest.mark.parametrize("mode", [0o600, 0o644, 0o664, 0o755, 0o711, 0o200 | 0o444])
def test_permission_bits_survive(filled, act, mode):
    os.chmod(filled.root / "dir/file", mode)
    act(filled.workspace)
    assert stat.S_IMODE(os.stat(filled.root / "dir/file").st_mode) == mode
    assert (filled.root / "dir/file").read_bytes() == NEW


@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o6755, 0o1644])
def test_bits_that_speak_of_the_old_content_are_not_carried(filled, mode):
    os.chmod(filled.root / "dir/file", mode)
    write(filled.workspace)
    assert stat.S_IMODE(os.stat(filled.root / "dir/file").st_mode) == mode & 0o777


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_new_files_and_directories_follow_the_umask(filled, mask):
    before = os.umask(mask)
    try:
        write(filled.workspace, "new/deep/file")
        write(filled.workspace, "dir/fresh")
    finally:
        os.umask(before)
    modes = {
        name: stat.S_IMODE(os.stat(filled.root / name).st_mode)
        for name in ("new", "new/deep", "new/deep/file", "dir/fresh")
    }
    directory, file = 0o777 & ~mask, 0o666 & ~mask
    assert modes == {
        "new": directory,
        "new/deep": directory,
        "new/deep/file": file,
        "dir/fresh": file,
    }


def test_the_permissions_that_a_replacement_gets_do_not_depend_on_the_umask(filled):
    os.chmod(filled.root / "dir/file", 0o666)
    before = os.umask(0o077)
    try:
        write(filled.workspace)
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(filled.root / "dir/file").st_mode) == 0o666


@pytest.fixture
def attributes(filled):
    try:
        os.setxattr(filled.root / "dir/file", "user.probe", b"")
        os.removexattr(filled.root / "dir/file", "user.probe")
    except OSError as failure:
        pytest.skip(f"needs extended attributes: {failure}")
    return filled


@pytest.mark.parametrize("act", [write, edit])
def test_extended_attributes_survive(attributes, act):
    file = attributes.root / "dir/file"
    os.setxattr(file, "user.origin", b"by hand \0\xff")
    os.setxattr(file, "user.empty", b"")
    act(attributes.workspace)
    assert {name: os.getxattr(file, name) for name in os.listxattr(file)} == {
        "user.origin": b"by hand \0\xff",
        "user.empty": b"",
    }


def acl(*entries: tuple[int, int, int]) -> bytes:
    """A POSIX ACL as its attribute holds it: version 2, then tag, permissions, id (acl(5))."""
    undefined = 0xFFFFFFFF
    return (2).to_bytes(4, "little") + b"".join(
        tag.to_bytes(2, "little")
        + bits.to_bytes(2, "little")
        + (undefined if who < 0 else who).to_bytes(4, "little")
        for tag, bits, who in entries
    )


USER_OBJ, USER, GROUP_OBJ, MASK, OTHER = 1, 2, 4, 16, 32
GRANT = acl((USER_OBJ, 6, -1), (USER, 6, 12345), (GROUP_OBJ, 4, -1), (MASK, 6, -1), (OTHER, 0, -1))
ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"


def set_acl(path, name: str, value: bytes) -> None:
    try:
        os.setxattr(path, name, value)
    except OSError as failure:
        pytest.skip(f"needs POSIX ACLs: {failure}")


def test_an_acl_survives(filled):
    file = filled.root / "dir/file"
    set_acl(file, ACCESS, GRANT)
    mode = os.stat(file).st_mode
    write(filled.workspace)
    assert (os.getxattr(file, ACCESS), os.stat(file).st_mode) == (GRANT, mode)


def test_a_directorys_default_acl_is_given_to_new_files_only(filled):
    os.chmod(filled.root / "dir/file", 0o640)
    set_acl(filled.root / "dir", DEFAULT, GRANT)
    write(filled.workspace)
    write(filled.workspace, "dir/fresh")
    assert os.listxattr(filled.root / "dir/file") == []
    assert stat.S_IMODE(os.stat(filled.root / "dir/file").st_mode) == 0o640
    assert os.listxattr(filled.root / "dir/fresh") == [ACCESS]


@pytest.mark.needs("root")
def test_file_capabilities_are_not_carried_to_new_content(filled):
    file = filled.root / "dir/file"
    # vfs_cap_data, revision 2, CAP_NET_RAW permitted and effective (capabilities(7)).
    try:
        os.setxattr(file, "security.capability", bytes.fromhex("01000002" + "00200000" + "00" * 12))
    except OSError as failure:
        pytest.skip(f"needs file capabilities: {failure}")
    write(filled.workspace)
    assert os.listxattr(file) == []


@pytest.mark.needs("root")
def test_owner_and_group_survive_a_write_by_root(filled):
    file = filled.root / "dir/file"
    os.chown(file, *plain_ids())
    write(filled.workspace)
    assert (os.stat(file).st_uid, os.stat(file).st_gid) == plain_ids()


def test_a_new_file_takes_the_group_of_a_set_group_directory(filled):
    groups = [group for group in os.getgroups() if group != os.getegid()]
    if os.geteuid() == 0:
        groups.append(plain_ids()[1])
    if not groups:
        pytest.skip("needs a second group")
    os.chown(filled.root / "dir", -1, groups[0])
    os.chmod(filled.root / "dir", 0o2775)
    write(filled.workspace, "dir/fresh")
    write(filled.workspace, "dir/below/fresh")
    assert os.stat(filled.root / "dir/fresh").st_gid == groups[0]
    assert os.stat(filled.root / "dir/below/fresh").st_gid == groups[0]


def test_a_hard_linked_file_gets_a_copy_of_its_own_and_the_receipt_says_so(filled):
    os.link(filled.root / "dir/file", filled.root / "other")
    receipt = write(filled.workspace)
    assert receipt.notes == (
        "'dir/file' is now a separate file; 1 other hard link keeps the old content",
    )
    assert (filled.root / "other").read_bytes() == b"old\n"
    assert (filled.root / "dir/file").read_bytes() == NEW
    assert write(filled.workspace).notes == ()


def test_a_hard_link_to_a_file_outside_is_parted_and_the_outside_is_untouched(filled):
    os.unlink(filled.root / "dir/file")
    os.link(filled.outside / "file", filled.root / "dir/file")
    write(filled.workspace)
    assert (filled.outside / "file").read_bytes() == b"outside\n"


# As a plain user: what root may do hides what the rules say.


@pytest.fixture
def owned(filled):
    """The same ground, the plain user's own."""
    give_to_plain_user(filled.root)
    return filled


def as_plain_user(ground, act) -> None:
    def inside() -> None:
        with Workspace.open(str(ground.root), ground.workspace.resolution) as workspace:
            act(workspace)

    run_as_plain_user(inside)


@pytest.mark.needs("root")
def test_a_plain_user_writes_what_is_its_own(owned):
    def act(workspace: Workspace) -> None:
        write(workspace)
        edit(workspace)
        write(workspace, "new/file")

    as_plain_user(owned, act)
    assert os.stat(owned.root / "new/file").st_uid == plain_ids()[0]


@pytest.mark.needs("root")
def test_an_owner_that_a_plain_users_rename_could_not_keep_is_refused(owned):
    file = owned.root / "dir/file"
    os.chown(file, 0, 0)
    os.chmod(file, 0o666)

    def act(workspace: Workspace) -> None:
        for attempt in (write, edit):
            with pytest.raises(ReadOnlyPathError, match="belongs to user 0") as refused:
                attempt(workspace)
            assert refused.value.hint

    as_plain_user(owned, act)
    assert (file.read_bytes(), os.stat(file).st_uid) == (b"old\n", 0)
    assert os.listdir(owned.root / "dir") == ["file"]


@pytest.mark.needs("root")
def test_a_group_that_a_plain_user_is_not_in_is_refused(owned):
    file = owned.root / "dir/file"
    os.chown(file, -1, 0)

    def act(workspace: Workspace) -> None:
        with pytest.raises(ReadOnlyPathError):
            write(workspace)

    as_plain_user(owned, act)
    assert file.read_bytes() == b"old\n"


@pytest.mark.needs("root")
def test_a_file_that_the_plain_user_may_not_write_is_refused(owned):
    file = owned.root / "dir/file"
    os.chown(file, 0, 0)
    os.chmod(file, 0o644)

    def act(workspace: Workspace) -> None:
        with pytest.raises(ReadOnlyPathError, match="not writable by this user"):
            write(workspace)

    as_plain_user(owned, act)
    assert file.read_bytes() == b"old\n"


@pytest.mark.needs("root")
def test_a_directory_that_the_plain_user_may_not_write_is_refused_without_a_trace(owned):
    os.chmod(owned.root / "dir", 0o555)

    def act(workspace: Workspace) -> None:
        for name in ("dir/file", "dir/new", "dir/new/deep"):
            with pytest.raises(ReadOnlyPathError, match="not writable by this user"):
                write(workspace, name)

    as_plain_user(owned, act)
    assert os.listdir(owned.root / "dir") == ["file"]
    assert os.listdir(owned.root) == ["dir"]


@pytest.mark.needs("root")
def test_a_root_directory_that_may_not_be_written_does_not_stop_writes_below(owned):
    os.chmod(owned.root, 0o555)
    as_plain_user(owned, write)
    assert (owned.root / "dir/file").read_bytes() == NEW
    assert os.listdir(owned.root / "dir") == ["file"]


@pytest.mark.needs("root")
def test_a_read_only_file_system_is_told_as_such(ground):
    (ground.root / "file").write_bytes(b"old\n")
    tried = subprocess.run(
        ["sh", "-c", 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1"', "-", ground.root],
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        if tried.returncode:
            pytest.skip(f"needs to mount: {tried.stderr.strip()}")
        with Workspace.open(str(ground.root), ground.workspace.resolution) as workspace:
            for name in ("file", "new", "new/deep"):
                with pytest.raises(ReadOnlyPathError):
                    write(workspace, name)
            assert workspace.read_all(workspace.resolve_read("file"), 10) == b"old\n"
    finally:
        subprocess.run(["umount", ground.root], check=False, capture_output=True)
    write(ground.workspace, "file")
