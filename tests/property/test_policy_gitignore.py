"""Our path patterns against git's own: `git check-ignore` on generated patterns and paths."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from paddock.policy.compiled import matches_path
from paddock.policy.globs import parse_glob, regex_of
from paddock.policy.load import PathsTable
from paddock.policy.pathset import Comparison, PathList, code_path, compile_pattern
from paddock.policy.positions import PatternError
from paddock.policy.questions.lint import idle_exceptions

NAMES = ["a", "b", "ab", "abc", "c.md", "ab.md", "x]y", "b-c", "a*"]
PIECES = [
    "a", "b", "c", "ab", "*", "**", "?", "/", "/", ".md", "[ab]", "[!a]", "[a-c]", "[b-]", "\\*",
    "[]x]", "***", "[[:alpha:]]", "[^b]",
]  # fmt: skip

components = st.sampled_from(NAMES)
paths = st.lists(components, min_size=1, max_size=4).map("/".join)
# A trailing slash takes part only without `!`: there our lists are stricter than git.
positive = st.lists(st.sampled_from(PIECES), min_size=1, max_size=7).map("".join)
negated = positive.map(lambda text: "!" + text.rstrip("/"))
patterns = st.lists(st.one_of(positive, positive, negated), min_size=1, max_size=6)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    root = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q", str(root)], check=True, env=environment(root))
    return root


def environment(root: Path) -> dict[str, str]:
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(root),
        "GIT_CONFIG_NOSYSTEM": "1",
        "LC_ALL": "C.UTF-8",
    }


def git_answers(root: Path, lines: list[str], asked: list[str]) -> dict[str, str | None]:
    """What git says about each path: the pattern that decides, or None."""
    (root / ".gitignore").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    done = subprocess.run(
        ["git", "check-ignore", "-v", "-n", "-z", "--no-index", "--stdin"],
        cwd=root,
        env=environment(root),
        input="".join(f"{path}\0" for path in asked).encode(),
        capture_output=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    fields = done.stdout.decode().split("\0")
    answers: dict[str, str | None] = {}
    for at in range(0, len(fields) - 1, 4):
        pattern = fields[at + 2]
        answers[fields[at + 3]] = pattern if pattern and not pattern.startswith("!") else None
    return answers


# gitignore(5): such asterisks are like one. git itself strips the literal text before it compares
# the rest, in which `**/` then stands at the beginning: by it `a**/b` names `a/x/b` and `ab`.
WITHIN_A_NAME = re.compile(r"[^/*]\*\*+/|/.*[^/*]\*\*+$")


def usable(texts: list[str]) -> list[str]:
    return [text for text in texts if compiles(text)]


def compiles(text: str) -> bool:
    try:
        compile_pattern(text)
    except PatternError:
        return False
    return True


def alike(texts: list[str]) -> list[str]:
    """Those by which git does what it documents."""
    return [text for text in texts if not WITHIN_A_NAME.search(text.removeprefix("!"))]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=patterns, asked=st.lists(paths, min_size=1, max_size=12, unique=True))
@example(texts=["ab", "!/**"], asked=["ab", "a/ab", "a/ab/ab", "a/b/c/ab"])
@example(texts=["*.md", "!/a/**"], asked=["c.md", "a/c.md", "a/b/c.md", "a/b/ab/c.md", "b/c.md"])
@example(texts=["ab", "!/a/b/**", "ab/c.md"], asked=["a/ab", "a/b/a/ab", "a/b/a/ab/c.md"])
@example(texts=["/**", "!a"], asked=["a", "a/b", "b/a/b"])
@example(texts=["a/**", "!a/b", "!ab"], asked=["a/b", "a/b/c", "a/b/ab", "a/b/ab/c", "b/ab"])
def test_the_deciding_pattern_is_the_one_that_git_names(
    repository: Path, texts: list[str], asked: list[str]
) -> None:
    kept = usable(alike(texts))
    ours = PathList([compile_pattern(text) for text in kept], Comparison.PERMITTING)
    found = {path: ours.find(path) for path in asked}
    assert {
        path: None if pattern is None else pattern.text for path, pattern in found.items()
    } == git_answers(repository, kept, asked)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=patterns, asked=st.lists(paths, min_size=1, max_size=12, unique=True))
def test_what_we_refuse_to_compile_matches_nothing_in_git(
    repository: Path, texts: list[str], asked: list[str]
) -> None:
    refused = [text for text in texts if not compiles(text) and not text.startswith("!")]
    assert git_answers(repository, refused, asked) == dict.fromkeys(asked)


@given(
    texts=st.lists(positive, min_size=1, max_size=6),
    path=st.lists(
        st.text(st.sampled_from("abABé\u0301ßSs.*-"), min_size=1, max_size=4),
        min_size=1,
        max_size=3,
    ).map("/".join),
)
def test_a_guarding_list_matches_whatever_a_permitting_one_does(
    texts: list[str], path: str
) -> None:
    compiled = [compile_pattern(text) for text in usable(texts)]
    exact, wide = (
        PathList(compiled, Comparison.PERMITTING),
        PathList(compiled, Comparison.GUARDING),
    )
    if exact.find(path) is not None:
        assert wide.find(path) is not None


@given(texts=st.lists(positive, min_size=1, max_size=6), path=paths)
def test_a_guarding_list_does_not_see_case(texts: list[str], path: str) -> None:
    patterns = [compile_pattern(text) for text in usable(texts) if "[" not in text]
    guarding = PathList(patterns, Comparison.GUARDING)
    assert (guarding.find(path) is None) == (guarding.find(path.upper()) is None)


@given(
    texts=st.lists(st.one_of(positive, negated, negated.map(lambda each: f"{each}/")), max_size=6),
    asked=st.lists(st.one_of(paths, paths.map(str.upper)), min_size=1, max_size=12),
)
@example(texts=["/a/", "!/a/b"], asked=["a", "a/b", "A/b", "a/b/c"])
@example(texts=["/a", "!/a/", "!/a/b"], asked=["a", "a/b", "a/b/c"])
@example(texts=["b", "/a/*", "!/a/b/", "!/a/b/c"], asked=["a/b", "a/b/c", "a/b/b"])
def test_an_exception_that_takes_out_nothing_may_as_well_be_left_out(
    texts: list[str], asked: list[str]
) -> None:
    listed = tuple(compile_pattern(text) for text in usable(texts))
    idle = {each.pattern for each in idle_exceptions(PathsTable(protected=listed))}
    rest = [each for each in listed if each not in idle]
    before, after = (PathList(each, Comparison.GUARDING) for each in (listed, rest))
    assert [before.find(path) for path in asked] == [after.find(path) for path in asked]


@given(above=positive, name=components, others=st.lists(st.one_of(positive, negated), max_size=3))
@example(above="a/", name="c.md", others=[])
def test_what_is_proposed_in_place_of_what_closes_it_lets_the_exception_count(
    above: str, name: str, others: list[str]
) -> None:
    texts = usable([*others, above, f"!/a/{name}"])
    listed = tuple(compile_pattern(text) for text in texts)
    for each in idle_exceptions(PathsTable(protected=listed)):
        if each.instead and each.pattern.text == f"!/a/{name}":
            changed = [each.instead if text == each.above.text else text for text in texts]
            open_then = PathList(map(compile_pattern, changed), Comparison.GUARDING)
            assert open_then.find(f"a/{name}") is None


@given(positive, paths)
def test_a_search_and_a_rule_read_a_pattern_alike(text: str, path: str) -> None:
    try:
        segments = parse_glob(text).segments
    except PatternError:
        return
    expected = re.fullmatch(regex_of(segments), path, re.DOTALL) is not None

    assert matches_path(code_path(segments), path.split("/")) == expected
