"""Path patterns by gitignore's rules."""

import pytest

from paddock.policy.compiled import find_hits
from paddock.policy.pathset import (
    Comparison,
    PathList,
    build_index,
    compile_pattern,
    compile_target,
)
from paddock.policy.positions import PatternError


def guarding(*texts: str) -> PathList:
    return PathList([compile_pattern(text) for text in texts], Comparison.GUARDING)


def permitting(*texts: str) -> PathList:
    return PathList([compile_pattern(text) for text in texts], Comparison.PERMITTING)


def matched(patterns: PathList, *paths: str) -> dict[str, str | None]:
    found = {path: patterns.find(path) for path in paths}
    return {path: None if pattern is None else pattern.text for path, pattern in found.items()}


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("*.md", ["a.md", "docs/a.md", "x.md/y"], ["a.mdx", "md"]),
        ("/*.md", ["a.md"], ["docs/a.md"]),
        ("/docs/**", ["docs/a", "docs/a/b"], ["docs", "x/docs/a"]),
        ("docs/*.md", ["docs/a.md", "docs/a.md/b"], ["docs/a/b.md", "x/docs/a.md"]),
        ("**/gen", ["gen", "a/gen", "a/b/gen/c"], ["agen"]),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b/c"], ["b", "x/a/b"]),
        ("build/", ["build/x", "a/build/x"], ["build", "a/build"]),
        ("a?c", ["abc", "x/abc"], ["ac", "a/c"]),
        ("[a-c]x", ["ax", "cx"], ["dx", "A"]),
        ("[!a-c]x", ["dx"], ["ax"]),
        ("[[:digit:]]", ["7"], ["x"]),
        (r"\*", ["*"], ["x"]),
        (r"\!x", ["!x"], ["x"]),
        (r"a\ ", ["a "], ["a"]),
        ("a ", ["a"], ["a "]),
        ("x**y", ["xy", "xaby"], ["xa/y"]),
        ("/plugins/*/agents/*.md", ["plugins/p/agents/a.md"], ["plugins/p/q/agents/a.md"]),
        ("*_*_*.py", ["a_b_c.py", "d/__.py"], ["a_b.py"]),
        ("a]", ["a]"], ["a"]),
        ("[]]", ["]"], ["["]),
        ("ünï*", ["ünïx"], ["uni"]),
        ("a\nb", ["a\nb"], ["a"]),
        ("*", ["a", "a/b", "a\nb"], []),
    ],
)
def test_a_pattern_matches_as_gitignore_says(pattern: str, yes: list[str], no: list[str]) -> None:
    patterns = permitting(pattern)
    expected = dict.fromkeys(yes, pattern) | dict.fromkeys(no, None)
    assert matched(patterns, *expected) == expected


def test_the_last_match_wins_and_an_excluded_parent_stays_excluded() -> None:
    patterns = permitting("*.key", "!test.key", "/sub/", "!/sub/test.key")
    assert matched(patterns, "a.key", "test.key", "x/test.key", "sub/test.key", "sub/b") == {
        "a.key": "*.key",
        "test.key": None,
        "x/test.key": None,
        "sub/test.key": "/sub/",
        "sub/b": "/sub/",
    }


def test_two_stars_at_the_end_match_at_every_depth_also_after_a_negation() -> None:
    taken_out = guarding("*.key", "!/fixtures/**")
    assert matched(
        taken_out, "a.key", "fixtures/a.key", "fixtures/x/y/a.key", "x/fixtures/a.key"
    ) == {
        "a.key": "*.key",
        "fixtures/a.key": None,
        "fixtures/x/y/a.key": None,
        "x/fixtures/a.key": "*.key",
    }
    kept = guarding("src/**", "!src/made", "!src/free/**")
    assert matched(kept, "src/a", "src/made", "src/made/a", "src/free", "src/free/x/y") == {
        "src/a": "src/**",
        "src/made": None,
        "src/made/a": "src/**",
        "src/free": "src/**",
        "src/free/x/y": "src/**",
    }


def test_a_guarding_list_sees_case_form_and_files_where_directories_are_named() -> None:
    patterns = guarding(".git/", ".env*", "*.key", "/Straße/**", "caf\u00e9")
    assert matched(
        patterns, ".GIT", "a/.Git/config", ".ENV", "X.Key", "STRASSE/a", "cafe\u0301", "CAFÉ", "git"
    ) == {
        ".GIT": ".git/",
        "a/.Git/config": ".git/",
        ".ENV": ".env*",
        "X.Key": "*.key",
        "STRASSE/a": "/Straße/**",
        "cafe\u0301": "caf\u00e9",
        "CAFÉ": "caf\u00e9",
        "git": None,
    }


def test_a_permitting_list_compares_exactly() -> None:
    patterns = permitting("/docs/**", "build/")
    assert matched(patterns, "docs/a", "Docs/a", "build", "build/x") == {
        "docs/a": "/docs/**",
        "Docs/a": None,
        "build": None,
        "build/x": "build/",
    }


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("[А-Я]*.txt", "яд.txt", "1.txt"),
        ("[α-ω]x", "ΩX", "ax"),
        ("[À-Þ]x", "éx", "ex"),
        ("[Α-Ω]x", "Σx", "Яx"),
        ("[!А-Я]x", "Яx", "xy"),
        ("[一-龥]x", "中X", "ax"),
        ("[a-\U0010ffff]x", "ЯX", "1x"),
    ],
)
def test_a_range_of_letters_beyond_ascii_takes_both_cases(pattern: str, yes: str, no: str) -> None:
    guarding = PathList([compile_pattern(pattern)], Comparison.GUARDING)
    assert guarding.find(yes) is not None
    assert guarding.find(no) is None


def test_a_permitting_range_takes_one_case_alone() -> None:
    permitting = PathList([compile_pattern("[А-Я]*.txt")], Comparison.PERMITTING)
    assert permitting.find("Яд.txt") is not None
    assert permitting.find("яд.txt") is None


def test_a_negation_is_compared_the_other_way() -> None:
    assert matched(guarding("*.key", "!public.key"), "public.key", "PUBLIC.key") == {
        "public.key": None,
        "PUBLIC.key": "*.key",
    }
    assert matched(permitting("/*", "!.git/"), "a", ".git", ".GIT/x") == {
        "a": "/*",
        ".git": None,
        ".GIT/x": None,
    }


def test_what_a_list_takes_out_with_its_last_word_is_not_permitted_below_either() -> None:
    patterns = permitting("**", "!secrets/", "secrets/public/")
    permitted = ("a", "secrets/public/x")
    taken_out = ("secrets", "secrets/a", "SECRETS/a/b")
    # gitignore's own rule: `**` matches what is below a directory that was taken out.
    assert matched(patterns, "secrets/a") == {"secrets/a": "**"}
    assert {path: patterns.permits(path) for path in permitted + taken_out} == dict.fromkeys(
        permitted, True
    ) | dict.fromkeys(taken_out, False)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("[Z-a]x", "Zx"),
        ("[A-Z]x", "bx"),
        ("[A-Z]x", "Bx"),
        ("[!A-Z]x", "bx"),
        ("a?c", "aßc"),
        ("e*", "e\u0301x"),
        ("[É]", "é"),
        ("?", "İ"),
    ],
)
def test_folding_never_loses_a_match_of_a_guarding_pattern(pattern: str, path: str) -> None:
    assert matched(guarding(pattern), path) == {path: pattern}


@pytest.mark.parametrize(
    "pattern",
    [
        "", " ", "!", "/", "!/", "//", "a//b", "//a", "../a", "a/../b", "./a", "a/.", "..",
        "[a", "[", "[!", "[/]", "[[:nope:]]", "a\\", "a\\/", "#x", "~/x", "~", "C:\\x",
        "c:/x", "a\0b", "x" * 5000, "!#x",
    ],
)  # fmt: skip
def test_a_pattern_that_can_match_nothing_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        compile_pattern(pattern)


def test_a_rule_target_takes_no_negation() -> None:
    assert compile_target("docs/**").text == "docs/**"
    with pytest.raises(PatternError):
        compile_target("!docs/**")


def test_the_root_is_matched_by_patterns_for_everything_alone() -> None:
    assert matched(permitting("**/"), ".", "a") == {".": "**/", "a": None}
    for text in ("**", "*", "/**", "/*", "**/*", "**/**"):
        assert matched(permitting(text), ".", "a") == {".": text, "a": text}
        assert find_hits(build_index([(0, compile_pattern(text), Comparison.PERMITTING)]), ".")
    for text in ("a", "*.md", "/docs/**"):
        assert matched(permitting(text), ".") == {".": None}
    for text in ("*/*", "*/**", "**/*/**", "*/*/*", "**/*/*"):
        assert matched(permitting(text), ".", "a") == {".": None, "a": None}
        assert matched(guarding(text), ".", "a") == {".": None, "a": None}
        assert not find_hits(build_index([(0, compile_pattern(text), Comparison.GUARDING)]), ".")
    assert matched(permitting("**", "!**"), ".") == {".": None}


@pytest.mark.parametrize(
    ("texts", "is_open"),
    [
        (["**", "!.*"], True),
        (["**", "!secrets/"], True),
        (["**", "!**"], False),
        (["src/**", "!.*"], False),
    ],
)
def test_a_negation_of_names_leaves_the_root_open(texts: list[str], is_open: bool) -> None:
    permitting = PathList([compile_pattern(text) for text in texts], Comparison.PERMITTING)
    assert permitting.permits(".") is is_open
    taken_out = {"!.*": ".git", "!secrets/": "secrets/x", "!**": "a"}[texts[1]]
    assert not permitting.permits(taken_out)


def test_a_set_tells_every_pattern_that_matches() -> None:
    texts = ["*.py", "/src/**", "src/a.py", "docs/", "**"]
    index = build_index(
        (number, compile_pattern(text), Comparison.PERMITTING) for number, text in enumerate(texts)
    )
    for path, is_directory, numbers in (
        ("src/a.py", False, {0, 1, 2, 4}),
        ("docs", True, {3, 4}),
        (".", False, {4}),
    ):
        assert {number for _, number in find_hits(index, path, is_directory)} == numbers


def test_many_stars_do_not_make_a_match_take_long() -> None:
    text = "*a" * 40 + "b"
    deep = "/".join(["**", "a*a*a*a*"] * 12) + "/b"
    patterns = permitting(text, deep)
    assert patterns.find("a" * 250) is None
    assert patterns.find("/".join(["a" * 30] * 100)) is None


def test_a_thousand_patterns_are_found_by_the_right_one() -> None:
    texts = [f"*.ext{n}" for n in range(300)] + [f"/d{n}/sub/**" for n in range(300)]
    texts += [f"name{n}" for n in range(200)] + [f"*_{n}_*" for n in range(200)]
    patterns = permitting(*texts)
    assert matched(patterns, "a.ext7", "d299/sub/x", "a/name42", "b/x_199_y", "nothing/here") == {
        "a.ext7": "*.ext7",
        "d299/sub/x": "/d299/sub/**",
        "a/name42": "name42",
        "b/x_199_y": "*_199_*",
        "nothing/here": None,
    }
