"""`.gitignore` files of any size and shape: what they say, and what they may cost."""

import pytest

from paddock import limits
from paddock.workspace.paths import ROOT
from paddock.workspace.search.globs import EVERYTHING
from paddock.workspace.search.request import Until
from paddock.workspace.search.walk import IgnoreRules, SearchReach, Walk, WalkTerms, compile_rules


def ignored(rules, names):
    return [name for name in names if rules.verdict(name, name, is_directory=False)]


@pytest.mark.parametrize(
    "line",
    [
        "{" * 1000 + "a" + "}" * 1000,
        "{" * 200 + "a," * 120_000 + "}" * 200,
        "{a,b}" * 7,
        "{a,b",
        "[a",
    ],
)
def test_a_line_that_is_no_pattern_of_a_moderate_size_is_passed_over_alone(line):
    rules = compile_rules(f"x\n{line}\ny\n")
    assert ignored(rules, ["x", "y", "a", "b"]) == ["x", "y"]


def test_the_last_rule_decides_among_more_than_one_expression_holds():
    lines = [f"{'!' if number % 3 else ''}*{number}?" for number in range(1_000)]
    rules = IgnoreRules("\n".join(lines))
    # "a12b" is meant by *2? and by *12?: the later one takes it out, *2? as well.
    assert rules.verdict("a12b", "a12b", is_directory=False) is True
    assert rules.verdict("a13b", "a13b", is_directory=False) is False
    assert rules.verdict("a999b", "a999b", is_directory=False) is True
    assert rules.verdict("ab", "ab", is_directory=False) is None


def test_of_rules_that_say_the_same_the_last_one_counts():
    assert ignored(IgnoreRules("*a?\n!*a?\n"), ["xab"]) == []
    assert ignored(IgnoreRules("*a?\n!*a?\n*a?\n"), ["xab"]) == ["xab"]


def test_of_a_great_many_patterns_the_last_ones_count_and_all_plain_names():
    lines = [f"x{number}*" for number in range(limits.ignore_patterns_max + 1)]
    rules = IgnoreRules("\n".join(["plain", *lines]))
    last = f"x{limits.ignore_patterns_max}!"
    assert ignored(rules, ["plain", "x0!", "x1!", last]) == ["plain", "x1!", last]


def test_braces_of_one_file_stand_for_so_much_together_and_the_other_lines_count():
    room = limits.ignore_braces_chars_max
    line = "{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}" + "x" * 4_000
    lines = ["{first,second}", *([line] * (room // (64 * 4_000) + 1)), "{third,fourth}", "plain"]
    rules = IgnoreRules("\n".join(lines))
    assert ignored(rules, ["first", "second", "third", "plain"]) == ["first", "second", "plain"]


def walked(workspace):
    walk = Walk(workspace, ROOT, WalkTerms(EVERYTHING), Until())
    try:
        return list(walk.paths())
    finally:
        walk.close()


def test_a_large_file_of_rules_is_read_to_its_end(workspace, root):
    (root / ".gitignore").write_text("# no rule\n" * 40_000 + "*.log\n")
    (root / "a.log").touch()
    (root / "b.txt").touch()
    assert walked(workspace) == [".gitignore", "b.txt"]


def test_a_file_of_rules_that_is_too_large_is_never_cut_within_a_rule(workspace, root, monkeypatch):
    text = "a.log\n*.txt\n"
    (root / ".gitignore").write_text(text)
    for name in ("a.log", "b.txt", "c"):
        (root / name).touch()
    monkeypatch.setattr("paddock.limits.ignore_file_bytes_max", len(text))
    assert walked(workspace) == [".gitignore", "c"]
    # Cut behind the star, it would leave out everything.
    monkeypatch.setattr("paddock.limits.ignore_file_bytes_max", len("a.log\n*"))
    assert walked(workspace) == [".gitignore", "b.txt", "c"]
    monkeypatch.setattr("paddock.limits.ignore_file_bytes_max", len("a.l"))
    assert walked(workspace) == [".gitignore", "a.log", "b.txt", "c"]


def test_a_path_of_any_depth_is_looked_up(workspace, root):
    (root / ".gitignore").write_text("no\n")
    reach = SearchReach(workspace, ROOT, EVERYTHING)
    assert reach.holds("d/" * (limits.path_depth_max - 1) + "yes") is True
    # Of what a rule leaves out nobody needs to know how deep it is.
    assert reach.holds("no/" + "d/" * 2_000 + "yes") is False
    assert reach.holds("d/" * 2_000 + "no") is False
    assert reach.too_deep == set()
    assert reach.holds("d/" * 2_000 + "yes") is False
    assert reach.too_deep == {"/".join("d" * limits.path_depth_max)}
