import pytest

from paddock.errors import InvalidPatternError
from paddock.policy.problems import PatternError
from paddock.workspace.search.globs import compile_glob, expand_braces


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        ("a", ["a"]),
        ("{a,b}", ["a", "b"]),
        ("x{a,b}y{1,2}", ["xay1", "xay2", "xby1", "xby2"]),
        ("{a,{b,c}d}", ["a", "bd", "cd"]),
        ("{a,}", ["a"]),
        ("{}", [""]),
        ("{a/b,c}/d", ["a/b/d", "c/d"]),
        (r"\{a,b\}", [r"\{a,b\}"]),
        ("[{]a,b", ["[{]a,b"]),
        ("[]{]x", ["[]{]x"]),
        (r"{a\,b,c}", [r"a\,b", "c"]),
    ],
)
def test_braces_stand_for_each_of_their_parts(text, texts):
    assert expand_braces(text) == texts


@pytest.mark.parametrize("text", ["{a", "a}", "{a,{b}", "{a,b}}", "{1,2}" * 7])
def test_braces_that_stand_for_nothing_or_too_much_are_refused(text):
    with pytest.raises(PatternError):
        expand_braces(text)


@pytest.mark.parametrize(
    ("glob", "path", "is_directory", "expected"),
    [
        ("*.py", "a.py", False, True),
        ("*.py", "d/a.py", False, True),
        ("*.py", "a.pyc", False, False),
        ("*.py", "a.PY", False, False),
        ("d/*.py", "d/a.py", False, True),
        ("d/*.py", "e/d/a.py", False, False),
        ("**/d/*.py", "e/d/a.py", False, True),
        ("**/d/*.py", "d/a.py", False, True),
        ("/a", "a", False, True),
        ("/a", "d/a", False, False),
        ("d/**", "d/e/f", False, True),
        ("d/**", "d", True, False),
        ("d/**/f", "d/f", False, True),
        ("d/", "d", True, True),
        ("d/", "d", False, False),
        ("d/", "e/d", True, True),
        ("{*.py,*.ts}", "d/a.ts", False, True),
        ("{d/*.py,*.ts}", "d/a.py", False, True),
        ("{d/*.py,*.ts}", "x/y/a.ts", False, True),
        ("{d/*.py,*.ts}", "x/d/a.py", False, False),
        ("!*.py", "a.py", False, False),
        ("!*.py", "a.ts", False, True),
        ("*", "x/y", False, True),
        ("**", "x/y", True, True),
        ("a?c", "abc", False, True),
        ("a?c", "a/c", False, False),
        ("[a-c]x", "bx", False, True),
        ("[!a-c]x", "bx", False, False),
    ],
)
def test_a_glob_means_what_gitignore_would_mean_by_it(glob, path, is_directory, expected):
    name = path.rpartition("/")[2]
    assert compile_glob(glob).matches(name, path, is_directory=is_directory) is expected


@pytest.mark.parametrize("text", ["", "!", "!!a", "{a", "a//b", "..", "[a", "{a/,b}", "#x"])
def test_a_glob_that_can_match_nothing_is_refused(text):
    with pytest.raises(InvalidPatternError, match="^the glob '"):
        compile_glob(text)
