import pytest

from paddock import limits
from paddock.errors import InvalidPatternError
from paddock.policy.positions import PatternError
from paddock.workspace.paths import ROOT
from paddock.workspace.search.globs import compile_glob, expand_braces
from paddock.workspace.search.walk import SearchReach


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
        ("a,b", ["a,b"]),
        ("{a,b},{c}", ["a,c", "b,c"]),
        ("{{},a}", ["a"]),
        ("{,,,}x", ["x"]),
        ("{[,],a}", ["[,]", "a"]),
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
    with pytest.raises(InvalidPatternError, match="^invalid glob '"):
        compile_glob(text)


FROM_THERE = (
    "write it relative to the searched directory, such as src/**/*.ts: "
    "no ./, no .., no doubled slash and no absolute path"
)


@pytest.mark.parametrize("text", ["./src/*.ts", "src/./a", "../a", "a//b", "~/a", "C:/a", "!./a"])
def test_a_glob_from_elsewhere_is_refused_with_where_globs_are_taken_from(text):
    with pytest.raises(InvalidPatternError) as refusal:
        compile_glob(text)
    assert refusal.value.hint == FROM_THERE


@pytest.mark.parametrize(
    "text", ["/w/root", "/w/root/**/*.ts", "!/w/root/a", "{*.py,/w/root/*.ts}", "/real/root/a"]
)
def test_an_absolute_glob_inside_the_root_is_refused_by_either_of_its_names(text):
    with pytest.raises(InvalidPatternError) as refusal:
        compile_glob(text, ("/w/root", "/real/root"))
    assert refusal.value.hint == FROM_THERE


@pytest.mark.parametrize("text", ["/*.ts", "/w/*.ts", "/w/root-2/*.ts", "w/root/*.ts"])
def test_a_glob_with_a_leading_slash_that_is_not_inside_the_root_can_be_used(text):
    path = text.removeprefix("/").replace("*", "a")
    assert compile_glob(text, ("/w/root",)).matches("a.ts", path, is_directory=False)
    assert compile_glob(text, ("/",)).matches("a.ts", path, is_directory=False)


def test_braces_are_taken_up_to_the_bounds_and_refused_beyond_them():
    deep = limits.glob_nesting_max
    assert expand_braces("{" * deep + "a" + "}" * deep) == ["a"]
    with pytest.raises(PatternError) as refusal:
        expand_braces("{" * (deep + 1) + "a" + "}" * (deep + 1))
    assert refusal.value.hint == f"braces at most {deep} deep"

    many = limits.glob_alternatives_max
    assert len(expand_braces("{" + ",".join("a" * many) + "}")) == many
    for text in ("{" + ",".join("a" * (many + 1)) + "}", "{a}" * (many + 1)):
        with pytest.raises(PatternError) as refusal:
            expand_braces(text)
        assert refusal.value.hint == f"at most {many} alternatives"

    long = limits.path_bytes_max
    assert expand_braces("a" * long) == ["a" * long]
    for text in ("a" * (long + 1), "\u00e9" * (long // 2 + 1), "{" * 1_000_000):
        with pytest.raises(PatternError) as refusal:
            expand_braces(text)
        assert refusal.value.hint == f"at most {long} bytes, as a path"


def test_an_argument_of_a_great_many_braces_is_an_error_that_says_what_is_too_much():
    with pytest.raises(InvalidPatternError) as refusal:
        compile_glob("{" * 17 + "a" + "}" * 17)
    assert (refusal.value.code, refusal.value.hint) == (
        "pattern.invalid",
        "braces at most 16 deep",
    )


def test_what_a_turned_round_glob_leaves_out_is_left_out_with_all_that_is_in_it(workspace):
    def held(glob, *paths):
        reach = SearchReach(workspace, ROOT, compile_glob(glob))
        return [reach.holds(path) for path in paths]

    assert held("!src", "a", "d/a", "d/src", "src/a", "d/src/e/a") == [True, True, *[False] * 3]
    assert held("!src/", "src/a") == [False]
    assert held("!d/e", "d/e/f/g") == [False]
    assert held("src", "other/src", "src") == [True, True]


@pytest.mark.parametrize("text", ["**/*.py", "**/a.py", "{*.py,**/b.py}", "*.py"])
def test_a_glob_about_names_at_any_depth_is_about_names_alone(text):
    glob = compile_glob(text)
    assert (glob.name_matches is None, glob.path_matches) == (False, None)


@pytest.mark.parametrize("text", ["d/**", "{*.py,d/**}", "*", "**"])
def test_a_glob_by_which_a_file_of_any_name_is_meant_looks_at_no_name(text):
    assert compile_glob(text).name_matches is None
