"""Our own walk and ripgrep's give the same answers, whatever the tree and its rules."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from paddock import limits
from paddock.errors import InvalidPatternError
from paddock.workspace import Workspace
from paddock.workspace.paths import ROOT
from paddock.workspace.search.globs import EVERYTHING, compile_glob
from paddock.workspace.search.grep import search_content
from paddock.workspace.search.request import NamesFound, Regex, Until, Wanted
from paddock.workspace.search.ripgrep import ripgrep
from paddock.workspace.search.walk import Walk, WalkTerms, search_names
from tests.support.shown import Shows

NAMES = ("a", "b", "ab", "a.py", "b.py", "x.log", "a-b", "A", ".h", "foo", "f oo", "a.b.c")
_PIECES = st.sampled_from(
    [
        "a",
        "b",
        "*",
        "?",
        "**",
        "*.py",
        "x.log",
        "a*",
        "*b",
        "foo",
        "[ab]",
        "[!a]*",
        "{a,b}*",
        "f\\ oo",
        ".h",
        "a.b.*",
    ]
)
_BODIES = st.lists(_PIECES, min_size=1, max_size=3).map("/".join)
RULES = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "", "", "!"]),
    st.sampled_from(["", "", "/"]),
    _BODIES,
    st.sampled_from(["", "", "/", "/**", "  ", "*"]),
).filter(lambda rule: "***" not in rule)
"""Three stars are two to git, and to our walk; ripgrep takes them for one."""
PATHS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4).map("/".join)
GLOBS = st.builds("{}{}".format, st.sampled_from(["", "", "/"]), _BODIES)


class Tree:
    """A tree on disk, for one example."""

    def __init__(self, files, rules):
        self.root = Path(tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
        for path in files:
            target = self.root / path
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(b"needle\nhay\n")
            except (FileExistsError, NotADirectoryError, IsADirectoryError):
                continue
        for folder, lines in rules:
            if (self.root / folder).is_dir():
                (self.root / folder / ".gitignore").write_text("\n".join(lines) + "\n")

    def __enter__(self):
        self.workspace = Workspace.open(str(self.root))
        return self

    def __exit__(self, *_):
        self.workspace.close()
        shutil.rmtree(self.root)

    def walked(self):
        terms = WalkTerms(EVERYTHING)
        walk = Walk(self.workspace, ROOT, terms, Until())
        try:
            return list(walk.paths())
        finally:
            walk.close()

    def ripgrep(self, *arguments):
        command = [ripgrep(), "--no-config", "--files", "--null", "--hidden", "--no-require-git"]
        command += ["--no-ignore-parent", "--no-ignore-dot", "--no-ignore-exclude", *arguments]
        ran = subprocess.run(command, cwd=self.root, capture_output=True, check=False)
        return sorted(ran.stdout.split(b"\0")[:-1])


TREES = st.builds(
    Tree,
    st.lists(PATHS, min_size=1, max_size=14),
    st.lists(
        st.tuples(
            st.lists(st.sampled_from(NAMES), max_size=2).map("/".join),
            st.lists(RULES, max_size=4),
        ),
        max_size=3,
    ),
)


@given(tree=TREES)
def test_our_walk_sees_the_files_that_ripgrep_sees_in_byte_order(tree):
    with tree:
        assert [os.fsencode(path) for path in tree.walked()] == tree.ripgrep()


@given(
    files=st.lists(PATHS, min_size=1, max_size=14),
    glob=GLOBS,
)
def test_a_glob_means_the_files_that_ripgrep_takes_it_to_mean(files, glob):
    with Tree(files, []) as tree:
        try:
            compiled = compile_glob(glob)
        except InvalidPatternError:
            return
        found = search_names(tree.workspace, Shows(), ROOT, compiled, 5_000).paths
        ours = [os.fsencode(path) for path in found if not path.endswith("/")]
        assert ours == tree.ripgrep("-g", glob)


def named(paths, glob):
    """What a glob means of a tree that has these files: some of them, and of the directories."""
    found = set()
    for path in paths:
        *above, name = parts = path.split("/")
        directories = ["/".join(parts[: at + 1]) for at in range(len(above))]
        meant = [
            glob.matches(*each, is_directory=True) for each in zip(above, directories, strict=True)
        ]
        if glob.negated and not all(meant):
            continue  # a walk does not come there
        found.update(
            f"{each}/" for each, is_meant in zip(directories, meant, strict=True) if is_meant
        )
        if glob.matches(name, path, is_directory=False):
            found.add(path)
    return sorted(found, key=os.fsencode)


@given(tree=TREES, glob=st.builds("{}{}".format, st.sampled_from(["", "", "!"]), GLOBS))
def test_names_are_those_of_the_files_that_ripgrep_sees_and_of_what_they_stand_in(tree, glob):
    try:
        compiled = compile_glob(glob)
    except InvalidPatternError:
        return
    with tree:
        files = [os.fsdecode(path) for path in tree.ripgrep()]
        found = search_names(tree.workspace, Shows(), ROOT, compiled, 5_000)
        assert found == NamesFound(named(files, compiled))
        for count in {1, len(found.paths) // 2} - {0}:
            first = search_names(tree.workspace, Shows(), ROOT, compiled, count)
            assert first == NamesFound(found.paths[:count], has_more=count < len(found.paths))


@given(tree=TREES)
def test_the_first_matches_are_the_beginning_of_all_matches(tree):
    with tree:

        def search(matches_max, pattern="needle"):
            wanted = Wanted(Regex(pattern), 1, matches_max)
            found = search_content(tree.workspace, Shows(), ROOT, wanted)
            return [file.path for file in found.files], found.has_more

        everything, has_more = search(limits.grep_matches_max)
        assert (everything, has_more) == (
            [path for path in tree.walked() if not path.endswith(".gitignore")],
            False,
        )
        for count in {1, len(everything) // 2, len(everything)} - {0}:
            assert search(count) == (everything[:count], count < len(everything))
            # A plain text may be found without ripgrep, a regular expression never is.
            assert search(count, "n[e]+dle") == search(count)
