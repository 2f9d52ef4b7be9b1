"""Text → path: what is inside, what is refused, and in which words."""

import contextlib
import os

import pytest

from paddock.errors import (
    ConfigError,
    InvalidPathError,
    PathError,
    PathNotADirectoryError,
    PathNotAFileError,
    PathThroughLinkError,
    PathTraversalError,
)
from paddock.workspace import Workspace, WorkspacePath
from paddock.workspace.paths import unchecked_path
from tests.support.disks import tree

p = unchecked_path


def asked_and_real(found) -> tuple[str, str]:
    return found.asked.relative, found.real.relative


@pytest.fixture
def linked(ground):
    """Directories, files, and links of every kind."""
    root = ground.root
    (root / "real/sub").mkdir(parents=True)
    (root / "real/file").write_bytes(b"inside\n")
    (root / "real/sub/deep").write_bytes(b"deep\n")
    (root / "top").write_bytes(b"top\n")
    for name, target in {
        "to_dir": "real",
        "to_sub": "real/sub",
        "to_file": "real/file",
        "chain": "to_file",
        "dir_chain": "to_dir/sub",
        "absolute": str(root / "real/file"),
        "dangling": "real/not_there",
        "to_root": ".",
        "loop": "loop",
        "out_dir": "../outside",
        "out_file": "../outside/file",
        "out_absolute": str(ground.outside / "file"),
        "out_chain": "out_dir/file",
        "out_dangling": "../not_there",
        "out_and_back": "../ws/top",
        "magic": "/proc/self/root/etc/passwd",
        "evil": str(root) + "-evil/file",
    }.items():
        (root / name).symlink_to(target)
    return ground


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("top", "top"),
        ("./top", "top"),
        (".//top", "top"),
        ("real//sub///deep", "real/sub/deep"),
        ("real/./sub/././deep", "real/sub/deep"),
        (".", "."),
        ("./", "."),
        ("real/", "real"),
        ("real/.", "real"),
        ("real/..", "."),
        ("real/../top", "top"),
        ("real/sub/../../top", "top"),
        ("not_there/../top", "top"),
        ("top/../real/file", "real/file"),
        ("not_there", "not_there"),
        ("not_there/below", "not_there/below"),
        ("top/below", "top/below"),
        ("%2e%2e", "%2e%2e"),
        ("%2e%2e/%2e%2e/etc", "%2e%2e/%2e%2e/etc"),
        ("...", "..."),
        ("..a/b..", "..a/b.."),
        (".hidden/.x", ".hidden/.x"),
        ("~/x", "~/x"),
        ("a\\..\\b", "a\\..\\b"),
        ("-rf", "-rf"),
        ("ünï/ファイル", "ünï/ファイル"),
        ("with space", "with space"),
    ],
)
def test_a_path_inside_becomes_canonical(linked, text, canonical):
    assert asked_and_real(linked.workspace.resolve_read(text)) == (canonical, canonical)


@pytest.mark.parametrize(
    "form", ["{root}/top", "{root}//./top", "/{root}/top", "{root}/real/../top"]
)
def test_an_absolute_path_inside_the_root_is_relative_to_it(linked, form):
    text = form.format(root=linked.root)
    assert asked_and_real(linked.workspace.resolve_read(text)) == ("top", "top")


def test_the_roots_own_name_is_the_root(linked):
    for text in (str(linked.root), f"{linked.root}/"):
        assert asked_and_real(linked.workspace.resolve_read(text)) == (".", ".")


def test_a_root_that_is_a_link_has_two_names(linked, tmp_path, resolution):
    (tmp_path / "alias").symlink_to("ws")
    with Workspace.open(str(tmp_path / "alias"), resolution) as workspace:
        assert (workspace.root, workspace.real_root) == (
            str(tmp_path / "alias"),
            str(tmp_path / "ws"),
        )
        for name in ("alias", "ws"):
            found = workspace.resolve_read(str(tmp_path / name / "top"))
            assert asked_and_real(found) == ("top", "top")
        with pytest.raises(PathTraversalError):
            workspace.resolve_read(str(tmp_path / "outside/file"))


@pytest.mark.parametrize(
    "text",
    [
        "..",
        "../",
        "../outside/file",
        "../ws/top",
        "real/../../outside/file",
        "real/sub/../../../outside/file",
        "not_there/../../x",
        "to_sub/../../..",
        "/",
        "/etc/passwd",
        "{root}-evil/file",
        "{root}/../outside/file",
        "{root}/../ws/top",
        "{outside}/file",
        "/proc/self/root{root}/top",
        "/proc/self/cwd/top",
        "out_dir",
        "out_dir/",
        "out_dir/file",
        "out_dir/not_there",
        "out_file",
        "out_absolute",
        "out_chain",
        "out_dangling",
        "out_and_back",
        "magic",
        "evil",
        "to_dir/../out_dir/file",
    ],
)
def test_a_path_that_leads_out_is_refused_for_every_use(linked, text):
    text = text.format(root=linked.root, outside=linked.outside)
    for resolve in (linked.workspace.resolve_read, linked.workspace.resolve_write):
        with pytest.raises(PathTraversalError, match="path escapes root"):
            resolve(text)


@pytest.mark.parametrize(
    ("text", "asked", "real"),
    [
        ("to_file", "to_file", "real/file"),
        ("chain", "chain", "real/file"),
        ("absolute", "absolute", "real/file"),
        ("to_dir", "to_dir", "real"),
        ("to_dir/", "to_dir", "real"),
        ("to_dir/file", "to_dir/file", "real/file"),
        ("dir_chain/deep", "dir_chain/deep", "real/sub/deep"),
        ("to_root/top", "to_root/top", "top"),
        ("to_root/to_root/to_file", "to_root/to_root/to_file", "real/file"),
        ("dangling", "dangling", "real/not_there"),
        ("to_dir/not_there", "to_dir/not_there", "real/not_there"),
    ],
)
def test_reading_follows_links_inside_and_says_where_they_lead(linked, text, asked, real):
    assert asked_and_real(linked.workspace.resolve_read(text)) == (asked, real)


def test_dots_after_a_link_mean_the_parent_of_where_it_led(linked):
    # As text, to_sub/../file would be `file`; the kernel says real/file, and so do we.
    assert asked_and_real(linked.workspace.resolve_read("to_sub/../file")) == (
        "real/file",
        "real/file",
    )
    with pytest.raises(PathThroughLinkError):
        linked.workspace.resolve_write("to_sub/../file")


@pytest.mark.parametrize(
    ("text", "hint"),
    [("to_dir/file", "real/file"), ("dir_chain/new/x", "real/sub/new/x"), ("to_root/top", "top")],
)
def test_a_write_through_a_linked_parent_is_refused_and_names_the_real_path(linked, text, hint):
    for resolve in (linked.workspace.resolve_write, linked.workspace.resolve_entry):
        with pytest.raises(PathThroughLinkError) as refused:
            resolve(text)
        assert refused.value.hint == f"use the real path: {hint}"


@pytest.mark.parametrize(
    ("text", "asked", "real", "exists"),
    [
        ("top", "top", "top", True),
        ("new", "new", "new", False),
        ("new/deep/file", "new/deep/file", "new/deep/file", False),
        ("to_file", "to_file", "real/file", True),
        ("chain", "chain", "real/file", True),
        ("absolute", "absolute", "real/file", True),
        ("dangling", "dangling", "real/not_there", False),
        ("real", "real", "real", True),
    ],
)
def test_a_write_goes_to_a_links_target(linked, text, asked, real, exists):
    found = linked.workspace.resolve_write(text)
    assert (*asked_and_real(found), found.exists) == (asked, real, exists)


@pytest.mark.parametrize(
    ("text", "exists"),
    [("to_file", True), ("out_file", True), ("loop", True), ("dangling", True), ("new", False)],
)
def test_an_entry_is_the_link_itself_wherever_it_leads(linked, text, exists):
    found = linked.workspace.resolve_entry(text)
    assert (found.path.relative, found.exists) == (text, exists)


def test_an_entry_behind_a_link_that_leads_out_is_an_escape(linked):
    with pytest.raises(PathTraversalError):
        linked.workspace.resolve_entry("out_dir/file")


def test_a_trailing_slash_means_a_directory(linked):
    workspace = linked.workspace
    for text in ("top/", "to_file/", "top/."):
        with pytest.raises(PathNotADirectoryError):
            workspace.resolve_read(text)
    for text in ("new/", "top/", "real/", "real/sub/.."):
        with pytest.raises(PathNotAFileError):
            workspace.resolve_write(text)
    with pytest.raises(PathNotADirectoryError):
        workspace.resolve_entry("to_dir/")
    assert workspace.resolve_entry("real/sub/").path.relative == "real/sub"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a\0b",
        "a\nb",
        "a\rb",
        "\x1b[31m",
        "a\x7f",
        "a\x85b",
        "lone\ud800",
        "lone\udcff/x",
        "x" * 256,
        "é" * 128,
        "a/" * 300,
        "ab/" * 1366,
        ".paddock-0123456789abcdef0123456789abcdef.tmp",
        "real/.paddock-0123456789abcdef0123456789abcdef.at",
        ".PADDOCK-0123456789ABCDEF0123456789ABCDEF.TMP",
    ],
)
def test_a_path_that_no_workspace_has_is_refused_and_nothing_happens(linked, text):
    before = tree(linked.root)
    workspace = linked.workspace
    for resolve in (workspace.resolve_read, workspace.resolve_write, workspace.resolve_entry):
        with pytest.raises(InvalidPathError):
            resolve(text)
    assert tree(linked.root) == before


@pytest.mark.parametrize(
    "text", ["x" * 255, "é" * 127, "/".join("a" * 250), ".paddock-x.tmp", ".paddock"]
)
def test_a_path_just_within_the_limits_is_taken(linked, text):
    assert linked.workspace.resolve_write(text).real.relative == text


def test_a_link_that_no_path_can_name_is_refused(linked):
    os.symlink(b"real/\xff", linked.root / "bytes")
    os.symlink("real/a\nb", linked.root / "newline")
    os.symlink(".paddock-" + "0" * 32 + ".tmp", linked.root / "temporary")
    for name in ("bytes", "newline", "temporary", "loop", "loop/x"):
        with pytest.raises(InvalidPathError):
            linked.workspace.resolve_read(name)


def test_forty_links_are_followed_and_forty_one_are_not(ground):
    (ground.root / "l0").write_bytes(b"end")
    for number in range(1, 42):
        (ground.root / f"l{number}").symlink_to(f"l{number - 1}")
    assert ground.workspace.resolve_read("l40").real.relative == "l0"
    with pytest.raises(InvalidPathError, match="more than 40 links"):
        ground.workspace.resolve_read("l41")


def test_a_message_quotes_the_path_cut_and_escaped(ground):
    with pytest.raises(PathTraversalError) as refused:
        ground.workspace.resolve_read("../\u202e" + "/xxxxxxxxx" * 40)
    assert "\u202e" not in refused.value.message
    assert len(refused.value.message) < 300


def test_only_a_workspace_makes_a_path():
    with pytest.raises(TypeError):
        WorkspacePath()
    with pytest.raises(TypeError):
        WorkspacePath("../out")


def test_a_path_knows_its_parts():
    path = p("a/b/c")
    assert (path.parts, path.name, path.parent, path.is_root) == (
        ("a", "b", "c"),
        "c",
        p("a/b"),
        False,
    )
    root = p(".")
    assert (root.parts, root.name, root.parent, root.is_root) == ((), ".", root, True)
    assert p("a").parent == root


def test_resolving_leaves_no_descriptor_open(linked):
    before = os.listdir("/proc/self/fd")
    for text in ("to_dir/../real/sub/deep", "out_dir/x", "loop", "new/a/b/c", "top", "a\0"):
        for resolve in ("resolve_read", "resolve_write", "resolve_entry"):
            with contextlib.suppress(PathError):
                getattr(linked.workspace, resolve)(text)
    assert os.listdir("/proc/self/fd") == before


def test_a_root_that_is_no_directory_is_a_configuration_error(tmp_path, resolution):
    (tmp_path / "file").write_bytes(b"")
    for name in ("file", "not_there", "a\0b"):
        with pytest.raises(ConfigError):
            Workspace.open(str(tmp_path / name), resolution)


def test_the_root_is_held_even_if_its_name_leads_elsewhere_later(ground, tmp_path):
    (ground.root / "file").write_bytes(b"mine")
    ground.root.rename(tmp_path / "moved")
    ground.root.symlink_to("outside")
    assert ground.workspace.read_all(ground.workspace.resolve_read("file"), 10) == b"mine"


def test_descriptors_are_not_inherited_by_programs(ground):
    (ground.root / "file").write_bytes(b"x")
    with ground.workspace.open_file(ground.workspace.resolve_read("file")) as file:
        assert not os.get_inheritable(file.fileno())
    assert not os.get_inheritable(ground.workspace.root_fd)
