"""Which files known programs write, remove and read, as their words tell it."""

import pytest

from paddock.policy.commands import parse_line
from tests.unit.policy.commands.touching import copied_by, removed_by, written_by

ASKED_OF_SED = ("the script does not show clearly what sed writes or runs",)


@pytest.mark.parametrize(
    "script",
    [
        "5,10p", "$d", "0~3d # w f", "s/a/b/p;s/[^/]*$//;s/ w x//", ":a;N;$!ba;s/\\n/ /g",
        "y/abc/w f/", "3a w .env", "/x/{s/a/b/;d}", "/x/,+3!p", "s|a|b|gI2", "s/a\\/b/c/",
        "s/[]w]/x/g", "s/[[:alpha:]/]//", "1i\\\nw f", "bx;:x", "$=",
    ],
)  # fmt: skip
def test_a_sed_script_that_only_prints_is_told_from_its_text(script):
    line = parse_line(f"sed -n '{script}' x")
    assert (written_by(line), line.runtime_only) == ((), ())


@pytest.mark.parametrize(
    "script",
    [
        "w .env", "w.env", "1w f\n$W g", "s/d/x/w .env", "s/d/x/gw .env", "s|d|x|w .env",
        "s/[/]/x/w f", "s/a\\/b/c/w f", "\\,x[,],w f", "/x/,+3!w f", "s/a/b/;w f;p", "r .env",
        "s/a/b/e", "1e rm x", "s/[/b/w f", "s/[/p;w f", "k", "s/a/b", "s/a/b/\nw f", "bw f", "y/a/b/w f",
        "/[/]/w f/p", "s[a[b[w f",
    ],
)  # fmt: skip
def test_a_sed_script_that_may_write_or_run_is_asked_about(script):
    assert parse_line(f"sed '{script}' x").runtime_only == ASKED_OF_SED
    assert parse_line(f"sed -e p --expression='{script}' x").runtime_only == ASKED_OF_SED


@pytest.mark.parametrize(
    "unit", ["s/[[:a:]", "s/[[", "\\", "/a", "y", "{", "1,", "[:a:]]", "s/a/b/;"]
)
def test_a_hostile_sed_script_ends(unit):
    assert written_by(parse_line(f"sed '{unit * 20_000}' x")) == ()


UNTOLD = "an option makes names of files that are not in the line"
ALL_BUT_GIT = ("*", ".[!g]*", ".g[!i]*", ".gi[!t]*", ".git?*")


@pytest.mark.parametrize(
    ("text", "removed"),
    [
        ("git clean -fdx", ALL_BUT_GIT),
        ("git clean -xf .", tuple(f"./{name}" for name in ALL_BUT_GIT)),
        ("git clean -f -d -X sub", ("sub",)),
        ("git -C sub clean -dfx", tuple(f"sub/{name}" for name in ALL_BUT_GIT)),
        ("git clean -fdx -e keep ..", ("..",)),
        ("git clean -fdxen", ALL_BUT_GIT),
        ("git clean -fdxn --no-dry-run", ALL_BUT_GIT),
        ("git clean -ndx", ()),
        ("git clean -fx --dry-run", ()),
        ("git worktree remove ../x", ("../x",)),
        ("find x -exec env rm {} +", ("x",)),
        ("find x -exec mv {} y ;", ("x",)),
        ("tar -cf x.tar --remove-files y", ("y",)),
        ("tar -cf x.tar y", ()),
    ],
)
def test_what_would_be_gone_is_known(text, removed):
    assert removed_by(parse_line(text)) == removed


@pytest.mark.parametrize("text", ["git clean -fd", "git clean -fd sub", "git clean -fx :/"])
def test_what_git_alone_knows_to_be_untracked_is_asked_about(text):
    assert parse_line(text).runtime_only == (
        "git clean removes every file that git does not track",
    )


@pytest.mark.parametrize(
    ("text", "touched"),
    [
        ("chmod -w .env", (".env",)),
        ("chmod a+w .env", (".env",)),
        ("chmod -v 600 .env", (".env",)),
        ("chmod --reference=a .env", (".env",)),
        ("chattr -i .env", (".env",)),
        ("setfacl -m u:a:r .env", (".env",)),
        ("tar -czf .env docs", (".env",)),
        ("tar czf .env docs", (".env",)),
        ("tar --create --file=.env docs", (".env",)),
        ("tar -C .. -czf x.tgz docs", ("x.tgz",)),
        ("tar -xzf x.tgz -C out", ("out",)),
        ("tar -tzf x.tgz", ()),
        ("uniq -c a .env", (".env",)),
        ("uniq -f 1 a", ()),
        ("csplit -f .env a 1", (".env",)),
        ("split --lines 1 a .env", (".env",)),
        ("split -l 1 a", ("xaa",)),
        ("csplit a 1", ("xx00",)),
        ("curl -s --dump-header .env http://h", (".env",)),
        ("curl -s --output-dir .git -O http://h/x", (".git", ".git/x")),
        ("curl -O http://h/.env", ("./.env",)),
        ("curl -H 'Do: c' http://h", ()),
        ("git config -f .env a.b c", (".env",)),
        ("git config --file=.env a.b c", (".env",)),
        ("git config -f .env --list", ()),
        ("git config user.name", ()),
        ("git format-patch -1 --output-directory .git/x", (".git/x",)),
        ("git format-patch -1 -o x", ("x",)),
        ("git diff --output-indicator-new=+", ()),
        ("git bundle create -q .env HEAD", (".env",)),
        ("git bundle verify x", ()),
        ("git worktree add -b new ../out/wt", ("../out/wt",)),
        ("git worktree list", ()),
        ("git -C ../other log --oneline", ()),
        ("git --git-dir=../o/.git show x", ()),
        ("git -C ../other commit -m x", ("../other",)),
        ("git -C sub diff --output=x", ("sub/x",)),
    ],
)
def test_what_would_be_written_is_known(text, touched):
    assert written_by(parse_line(text)) == touched


def test_what_stands_below_is_written_with_it_where_an_option_says_so():
    assert copied_by(parse_line("chmod -R 777 .")) == (("./.", "."),)
    assert copied_by(parse_line("chown --recursive a x y")) == (("x/.", "x"), ("y/.", "y"))
    assert ("x/.", "x") in copied_by(parse_line("gzip -r x"))
    assert copied_by(parse_line("chmod 777 x")) == ()
    assert copied_by(parse_line("gzip x")) == ()


@pytest.mark.parametrize(
    ("text", "touched", "copied"),
    [
        ("find x -exec sed -i s/1/2/ {} +", ("x",), (("x/.", "x"),)),
        ("find x y -exec touch {} +", ("x", "y"), (("x/.", "x"), ("y/.", "y"))),
        ("find x -exec dd if=a of={} ;", ("x",), (("x/.", "x"),)),
        ("find . -type l -exec truncate -s0 {} +", (".",), (("./.", "."),)),
        ("find x -exec cp {} y.d/ ;", (), (("x", "y.d/"),)),
        ("find x -exec grep -n a {} +", (), ()),
        ("find x -exec cat {} ;", (), ()),
        ("find x -exec touch y ;", (), ()),
    ],
)
def test_what_find_hands_to_a_command_is_told_of_where_it_begins(text, touched, copied):
    line = parse_line(text)

    assert set(written_by(line)) >= set(touched)
    assert set(copied_by(line)) >= set(copied)
    assert line.runtime_only == ()
    if not touched and not copied:
        assert not {"x", "{}"} & {*written_by(line), *removed_by(line)}


@pytest.mark.parametrize(
    ("text", "sifted"),
    [
        ("find . -name '*.pyc' -delete", [("delete", ".", (("name", "*.pyc"),), "")]),
        ("find x y -type f -iname '*.O' -delete",
         [("delete", each, (("type", "f"), ("iname", "*.O")), "") for each in "xy"]),
        ("find . -path './a/[^b]*' -exec rm {} +", [("delete", ".", (("path", "./a/[!b]*"),), "")]),
        ("find . -name .env -exec sed -i s/1/2/ {} +",
         [("create", ".", (("name", ".env"),), "")]),
        ("find . -name '*.py' -exec cp {} out ;",
         [("view", ".", (("name", "*.py"),), ""), ("create", ".", (("name", "*.py"),), "out")]),
        ("find . -name '*.py' -exec wc -l {} +", [("view", ".", (("name", "*.py"),), "")]),
        ("find . -type f -exec wc -l {} +", []),
        ("find . -mtime +5 -name '*.log' -delete", [("delete", ".", (("name", "*.log"),), "")]),
    ],
)  # fmt: skip
def test_what_the_tests_of_find_leave_is_told_with_what_becomes_of_it(text, sifted):
    found = [each for command in parse_line(text).commands for each in command.touch.sifted]
    assert [(each.act, each.start, each.tests, each.target) for each in found] == sifted
    assert parse_line(text).runtime_only == ()


@pytest.mark.parametrize(
    "tests",
    ["! -name '*.py'", "-not -name x", "-name x -o -name y", "\\( -name x \\)", "-name 'a\\*'",
     "-name '[[:alpha:]]'", "-type l", "-newer x", "", "-name x -prune"],
)  # fmt: skip
def test_tests_of_find_that_cannot_be_told_narrow_nothing(tests):
    line = parse_line(f"find sub {tests} -delete")
    assert (removed_by(line), line.commands[0].touch.sifted) == (("sub",), [])
    assert removed_by(parse_line(f"find -L sub -name x {tests} -delete")) == ("sub",)


@pytest.mark.parametrize(
    "text", ["env -C .git rm config", "env -iC.git rm x", "env --chdir=x rm y", "sudo -D x rm y"]
)
def test_a_program_that_is_started_elsewhere_is_asked_about(text):
    assert "another directory" in parse_line(text).runtime_only[0]


@pytest.mark.parametrize(
    "text", ["env A=1 rm x", "env -u C rm x", "env -i tar -C x -c y", "sudo rm x"]
)
def test_a_program_that_is_started_here_is_not(text):
    assert parse_line(text).runtime_only == ()


def test_of_the_variables_of_node_those_count_that_load_something():
    asked = ("the environment decides which program runs",)
    for name in ("NODE_OPTIONS", "NODE_PATH", "NODE_EXTRA_CA_CERTS", "NODE_ENVS"):
        assert parse_line(f"{name}=x npm test").runtime_only == asked
    for name in ("NODE_ENV", "NODE_DEBUG", "NODE_NO_WARNINGS"):
        assert parse_line(f"{name}=x npm test").runtime_only == ()


REWRITES = "git rewrites files that are not named in the line"


@pytest.mark.parametrize(
    ("text", "copied", "asked"),
    [
        ("git checkout HEAD~1 -- src prot", ("HEAD~1", "src", "prot"), ()),
        ("git restore --source=HEAD~1 prot/", ("prot/",), ()),
        ("git -C sub restore prot", ("sub/prot",), ()),
        ("git checkout HEAD~1 -- .", ("HEAD~1",), (REWRITES,)),
        ("git restore ../..", (), (REWRITES,)),
        ("git restore --source=HEAD~1 :/", (":/",), (REWRITES,)),
        ("git checkout -- 'a*'", ("a*",), (REWRITES,)),
        ("git restore --pathspec-from=x", (), (REWRITES,)),
        ("git restore --staged .", (), ()),
        ("git restore --staged --worktree .", (), (REWRITES,)),
        ("git restore -S -W .", (), (REWRITES,)),
        ("git restore -- --staged .", ("--staged",), (REWRITES,)),
        ("git checkout -b new", ("new",), ()),
    ],
)
def test_git_rewrites_all_that_is_below_what_it_is_given(text, copied, asked):
    line = parse_line(text)

    assert copied_by(line) == tuple((f"{each.rstrip('/')}/.", each) for each in copied)
    assert line.runtime_only == asked


@pytest.mark.parametrize(
    "options",
    ["-ps", "-p", "-b", "-cols 16", "-c 16", "-c16", "-len 4", "-l 4", "-l4", "-seek 1", "-s 1",
     "-s1", "-skip 1", "-g 2", "-groupsize 2", "-bits", "-u -i", "--ps", "--cols 8", "-n x", "-co",
     "-capitalize", "-o 1", "-R never", "--"],
)  # fmt: skip
def test_the_options_of_xxd_hide_no_operand(options):
    assert "prot/x" in written_by(parse_line(f"xxd {options} a prot/x"))


def test_a_value_of_xxd_may_be_taken_for_an_operand_and_then_more_is_judged():
    assert [written_by(parse_line(f"xxd {each} a")) for each in ("", "-ps", "-c16", "-c 16")] == [
        (),
        (),
        (),
        ("a",),
    ]


@pytest.mark.parametrize(
    ("text", "touched"),
    [
        ("gunzip n.key.gz", ("n.key.gz", "n.key")),
        ("gzip -d n.key.gz", ("n.key.gz", "n.key")),
        ("gzip --decomp n.key.gz", ("n.key.gz", "n.key")),
        ("gzip -S .x -d n.key.x", ("n.key.x", "n.key")),
        ("gunzip n.key-gz", ("n.key-gz", "n.key")),
        ("bzip2 -dk n.key.bz2", ("n.key.bz2", "n.key")),
        ("bunzip2 n.key.bz2", ("n.key.bz2", "n.key")),
        ("xz -d n.key.xz", ("n.key.xz", "n.key")),
        ("xz -t -d n.key.xz", ("n.key.xz", "n.key")),
        ("unxz -T 4 n.key.xz", ("n.key.xz", "n.key")),
        ("zstd -d n.key.zst", ("n.key.zst", "n.key")),
        ("zstd -q a -o n.key", ("a", "n.key", "a.zst")),
        ("gzip a", ("a", "a.gz")),
        ("gzip -S .lock a", ("a", "a.lock")),
        ("gzip --suffix=.lock a", ("a", "a.lock")),
        ("gzip -dc n.key.gz", ("n.key.gz",)),
        ("gunzip --stdout n.key.gz", ("n.key.gz",)),
        ("xz -l n.key.xz", ("n.key.xz",)),
    ],
)
def test_the_names_that_packing_and_unpacking_make_are_known(text, touched):
    line = parse_line(text)
    assert set(written_by(line)) >= set(touched)
    assert line.runtime_only == ()


@pytest.mark.parametrize(
    "text", ["gunzip n.tgz", "gunzip -N a.gz", "gzip -dN a.gz", "gunzip -r d", "gunzip *.gz", "unzstd -r d",
             "zstd --output-dir-flat d a"]
)  # fmt: skip
def test_names_that_only_the_packed_files_tell_are_asked_about(text):
    assert parse_line(text).runtime_only == (UNTOLD,)
    assert parse_line("gzip -N a").runtime_only == ()
    assert parse_line("gzip -r d *.txt").runtime_only == ()


@pytest.mark.parametrize(
    ("text", "touched"),
    [
        ("cp -b -S .key a b.c", ("b.c", "b.c.key")),
        ("cp --suffix=.key a b.c", ("b.c", "b.c.key")),
        ("mv --suf .key a b.c", ("b.c", "b.c.key")),
        ("ln -s -S.key a b.c", ("b.c", "b.c.key")),
        ("install -bS .key a b.c", ("b.c", "b.c.key")),
        ("cp -b a b.c", ("b.c",)),
        ("sed -i.key s/a/b/ c/a", ("c/a", "c/a.key")),
        ("sed --in-place=.key s/a/b/ a", ("a", "a.key")),
        ("sed -i s/a/b/ a", ("a",)),
        ("perl -i.key -pe 1 a", ("a", "a.key")),
        ("perl -pi.key -e 1 a", ("a", "a.key")),
        ("perl -Mstrict -pi -e 1 a", ("a",)),
        ("ruby -i.key -pe 1 a", ("a", "a.key")),
    ],
)
def test_names_that_are_made_with_a_suffix(text, touched):
    assert tuple(written_by(parse_line(text))) == tuple(dict.fromkeys(touched))
    assert parse_line(text).runtime_only == ()


@pytest.mark.parametrize(
    "text",
    [
        "split --additional-suffix=.key a q", "split --additional-suffix .key a",
        "csplit -b %02d.lock a 1", "csplit -f '' -b prot/%d a 1",
        "csplit -f q --suffix-format=%d.lock a 1", "sed -i'prot/*' s/a/b/ a",
        "sed -i's_*' s/a/b/ c/a", "perl -i'prot/*' -pe 1 a",
    ],
)  # fmt: skip
def test_names_that_an_option_makes_by_a_form_are_asked_about(text):
    assert parse_line(text).runtime_only == (UNTOLD,)


@pytest.mark.parametrize(
    "options", ["-b -z .key", "-bz.key", "--suffix=.key", "-B prot/", "--pref prot/", "-Y .env"]
)
def test_the_names_of_what_patch_keeps_are_asked_about(options):
    assert parse_line(f"patch {options} a p.diff").runtime_only == (UNTOLD,)
    assert parse_line("patch -b -p1 a p.diff").runtime_only == ()


@pytest.mark.parametrize(
    ("text", "touched"),
    [
        ("ln -s ../src/w", ("./w", "../src/w")),
        ("cp --parents prot/x ../d", ("../d/prot/x", "../d")),
        ("git format-patch -1", (".",)),
        ("git -C prot format-patch -1", ("prot", "prot/.")),
        ("git format-patch -1 --stdout", ()),
    ],
)
def test_what_is_written_where_one_stands(text, touched):
    assert set(written_by(parse_line(text))) >= set(touched)
    assert touched or not written_by(parse_line(text))


@pytest.mark.parametrize(
    ("text", "touched"),
    [
        ("mktemp prot/XXXX", ("prot/XXXX",)),
        ("mktemp -p prot", ("prot",)),
        ("mktemp --tmpdir=prot n.XXXX", ("prot", "n.XXXX")),
        ("mktemp --suffix=.key nXXXX", ("nXXXX", "nXXXX.key")),
        ("mktemp -d", ()),
        ("zip prot/z.zip a .env", ("prot/z.zip",)),
        ("zip -qr x.zip docs", ("x.zip",)),
        ("zip -O prot/z.zip x.zip a", ("prot/z.zip", "x.zip")),
        ("link prot/x l.x", ("prot/x", "l.x")),
        ("openssl req -x509 -keyout n.key -out a.pem", ("n.key", "a.pem")),
        ("openssl rand -out=n.key 5", ("n.key",)),
        ("openssl dgst -sha256 .env", ()),
        ("curl --libcurl .env http://h", (".env",)),
        ("patch --output=prot/x a p.diff", ("prot/x", "a", "p.diff")),
        ("patch -d prot -i ../p.diff", ("prot",)),
        ("patch --directory prot -i ../p.diff", ("prot",)),
        ("patch --reject-file=prot/rej a p.diff", ("prot/rej", "a", "p.diff")),
        ("patch -r prot/rej a", ("prot/rej", "a")),
        ("git checkout-index -f src/x", ("src/x",)),
    ],
)
def test_what_lesser_known_programs_write(text, touched):
    assert written_by(parse_line(text)) == touched
    assert parse_line(text).runtime_only == ()


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("curl -K x http://h", "an option makes names of files that are not in the line"),
        ("curl -sKx http://h", "an option makes names of files that are not in the line"),
        ("split --filter='cat > prot/x' a", "an option makes names of files"),
        ("curl --config x", "an option makes names of files that are not in the line"),
        ("git checkout-index -f -a", "an option makes names of files"),
        ("git checkout-index --prefix=prot/ -f src/x", "an option makes names of files"),
        ("git checkout-index --prefix prot/ -f src/x", "an option makes names of files"),
    ],
)
def test_what_another_file_names_is_asked_about(text, asked):
    assert parse_line(text).runtime_only[0].startswith(asked)
