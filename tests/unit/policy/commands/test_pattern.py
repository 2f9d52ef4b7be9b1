"""Patterns of commands, and what a narrow allow covers."""

import pytest

from paddock.policy.commands import compile_command_pattern, parse_line


def exactly(pattern, text):
    line = parse_line(text)
    compiled = compile_command_pattern(pattern)
    return bool(line.commands) and all(compiled.matches_exactly(each) for each in line.commands)


def any_reading(pattern, text):
    compiled = compile_command_pattern(pattern)
    return any(compiled.matches_any_reading(each) for each in parse_line(text).commands)


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("git diff *", "git diff", True),
        ("git diff *", "git diff HEAD a b", True),
        ("git diff *", "git difftool", False),
        ("git diff *", "git", False),
        ("git diff", "git diff", True),
        ("git diff", "git diff HEAD", False),
        ("git diff*", "git diff-files", True),
        ("git diff*", "git diff HEAD", False),
        ("npm run test:*", "npm run test:unit", True),
        ("npm run test:*", "npm run test:", True),
        ("npm run *:unit", "npm run test:unit", True),
        ("npm run t*t:u*t", "npm run test:unit", True),
        ("npm run t*t:u*t", "npm run test:unix", False),
        ("a * c", "a b c", True),
        ("a * c", "a b b c", False),
        ("a *", "a 'x\ny'", True),
        ("a x*y", "a 'x\ny'", True),
        ("echo 'a b' *", "echo 'a b' c", True),
        ("echo '*'", "echo '*'", True),
        ("echo '*'", "echo x", False),
        (r"echo \*", r"echo \*", True),
        ("/usr/bin/git status", "git status", True),
        ("git status", "/usr/bin/git status", True),
        ("git status", "/opt/git status", True),
        ("Git status", "git status", True),
        ("git status", "GIT STATUS", True),
        ("psql -c *DROP*", "psql -c 'drop table t'", True),
        ("psql -c *drop*", "psql -c 'DROP TABLE t'", True),
        ("psql -c *drop*", "psql -C 'DROP TABLE t'", False),
        ("git branch -D *", "git branch -d x", False),
        ("git branch -D *", "git branch -D x", True),
        ("straße *", "STRASSE x", True),
        ("./Run *", "./run x", True),
        ("git push *", "G?T push", True),
        ("drop*x *", "DR* x", True),
        ("*", "anything at all", True),
        ("* --version", "node --version", True),
        ("CI=1 npm test", "CI=1 npm test", True),
    ],
)
def test_a_pattern_matches_by_words(pattern, text, expected):
    assert any_reading(pattern, text) is expected


@pytest.mark.parametrize(
    "pattern",
    ["", "  ", "a && b", "a; b", "a | b", "a > b", "a $(b)", "a `b`", "a\nb", "a\0", "'open", 'a "b',
     "''", "/usr/bin/", "a\\"],
)  # fmt: skip
def test_a_pattern_that_can_match_nothing_does_not_compile(pattern):
    with pytest.raises(ValueError, match="pattern|program"):
        compile_command_pattern(pattern)


def test_the_text_of_a_pattern_is_kept_and_any_is_known():
    assert compile_command_pattern("git diff *").text == "git diff *"
    assert [compile_command_pattern(text).is_any for text in ("*", "* *", "git *", "* x")] == [
        True, True, False, False,
    ]  # fmt: skip


def test_an_allow_of_any_command_covers_what_a_narrow_one_does_not():
    for text in ("PATH=. git status", "./x", "echo $(a)", "a 'open"):
        assert exactly("*", text)
        assert not exactly("git *", text)


@pytest.mark.parametrize("text", ["Git status", "git STATUS", "GIT status"])
def test_an_allow_is_exact_about_letter_case(text):
    assert any_reading("git status", text)
    assert not exactly("git status", text)


INNOCENT = (
    ("git status", "git status"),
    ("git status *", "git status -sb"),
    ("git diff *", "git diff --stat HEAD~3 -- src/a.py"),
    ("git diff *", "git diff --cached --name-only"),
    ("git diff *", "git diff main..work -- a/b src/*.py"),
    ("git diff /dev/null *", "git diff /dev/null a"),
    ("git diff *", "git diff --word-diff=color --ignore-all-space -U5"),
    ("git log *", "git log --oneline -n 5 --format='%h %s' --graph"),
    ("git log *", "git log -p -S foo --since=yesterday"),
    ("git show *", "git show HEAD:src/a.py"),
    ("git grep *", "git grep -n -i 'foo bar'"),
    ("git *", "git --no-pager log -3"),
    ("git *", "git blame -L 1,5 f"),
    ("git commit *", "git commit -m 'a; b $(c)'"),
    ("git add *", "git add src/*.py"),
    ("ls *", "ls -la --color=never /tmp"),
    ("cat *", "cat a b"),
    ("cat *", "cat -- 'a b'"),
    ("head *", "head -c 100 -n 5 f"),
    ("wc *", "wc -l src/*.py"),
    ("grep *", "grep -rnieo 'a.*b' --include='*.py' src"),
    ("rg *", "rg -n --hidden -g '*.py' 'foo|bar' src"),
    ("find *", "find . -type f -name '*.py' -newer x -print0"),
    ("find . -exec grep *", "find . -exec grep -l x {} +"),
    ("find . -delete", "find . -delete"),
    ("sed -n *", "sed -n 10,20p f"),
    ("sed -n *", "sed -n -e '/a/,/b/p' -e '$=' f"),
    ("sed *", "sed 's/a/b/g; s|x|\\1|; /^$/d' f"),
    ("sed *", "sed -E 's/[0-9]+/N/g' f g"),
    ("sed -i *", "sed -i s/a/b/ f"),
    ("awk *", "awk -F: '$3 >= 10 || /x/ {print $1, NF}' f"),
    ("sort *", "sort -t, -k2,2nr -u f"),
    ("sort -o out *", "sort -o out f"),
    ("uniq *", "uniq -c f"),
    ("tar tf *", "tar tf a.tar -v"),
    ("tar *", "tar -tzf a.tgz"),
    ("tar xf *", "tar xf a.tar"),
    ("make *", "make -j4 -k test"),
    ("make test", "make test"),
    ("pytest *", "pytest -q -x tests/unit -k 'a or b' -m 'not slow' --maxfail=1"),
    ("python3 *", "python3 script.py -c x --eval y"),
    ("python3 -m pytest *", "python3 -m pytest -q tests"),
    ("npm test *", "npm test -- --runInBand"),
    ("npm run *", "npm run build"),
    ("cargo test *", "cargo test --all -- --nocapture"),
    ("go test *", "go test ./... -run TestX -v"),
    ("timeout 60 pytest *", "timeout 60 pytest -q"),
    ("timeout * pytest *", "timeout 60 pytest -q"),
    ("env CI=1 npm test", "env CI=1 npm test"),
    ("nice make *", "nice make test"),
    ("bash scripts/x.sh *", "bash scripts/x.sh a b"),
    ("bash *", "bash scripts/x.sh -c y"),
    ("./gradlew *", "./gradlew test"),
    ("echo *", "echo 'a > b' \"c\""),
    ("test *", "test -f x -a -d y"),
    ("[ *", "[ -f x ]"),
    ("tool *", "tool build --release src"),
    ("tee *", "tee log.txt"),
    ("jq *", "jq -r '.a[] | .b' f.json"),
    ("curl *", "curl -sSfL https://example.org/"),
    ("/usr/bin/git status", "/bin/git status"),
    ("date *", "date -u +%F"),
    ("nm *", "nm -C a.o"),
    ("objdump *", "objdump -d a.o"),
    ("strings *", "strings -n 8 a.o"),
    ("zstdcat *", "zstdcat -q a.zst"),
    ("getent *", "getent passwd me"),
    ("ldd ./a", "ldd ./a"),
    ("lsof *", "lsof -iUDP -n"),
    ("sqlite3 *", "sqlite3 -readonly db 'SELECT credits, edited FROM editors'"),
    ("uniq *", "uniq -- f"),
    ("sed -n *", "sed -n -- p -n"),
    ("npm *", "npm run build"),
    ("npm ls *", "npm ls --all"),
)  # fmt: skip


@pytest.mark.parametrize(("pattern", "text"), INNOCENT)
def test_a_narrow_allow_covers_what_it_is_written_for(pattern, text):
    assert exactly(pattern, text)


REFUSED = (
    ("git diff *", "git diff /dev/null .env"),
    ("git diff *", "git diff -- /dev/null /etc/passwd"),
    ("git diff *", "git diff HEAD -- ../x"),
    ("git diff *", "git diff --outp=x"),
    ("git diff *", "git diff --ext"),
    ("git diff *", "git diff --no-index a b"),
    ("git *", "git -P -c a.b=c log"),
    ("git *", "git unknown-subcommand"),
    ("git *", "git submodule foreach x"),
    ("git st*", "git -c x status"),
    ("* status", "./git status"),
    ("g* *", "git status"),
    ("ls *", "ls ~/x"),
    ("ls *", "ls *"),
    ("ls *", "ls -*"),
    ("ls *", "ls a*/../b"),
    ("ls *", "ls {a,b}"),
    ("ls *", "ls $'a'"),
    ("ls *", "X=1 ls"),
    ("ls *", "ls $x"),
    ("ls *", "ls a\u00a0b"),
    ("env *", "env git status"),
    ("timeout *", "timeout 5 git status"),
    ("timeout 60 pytest *", "timeout 60 pytest -p x"),
    ("timeout 60 *", "timeout 60 git status"),
    ("xargs grep *", "xargs grep x"),
    ("find . -exec *", "find . -exec rm {} +"),
    ("find . -exec grep *", "find . -exec grep x {} + -exec rm {} +"),
    ("python3 -m *", "python3 -m pip install x"),
    ("python3 -m pytest *", "python3 -m pytest -p x"),
    ("bash -c *", "bash -c 'rm x'"),
    ("sort *", "sort -k1 -uo x f"),
    ("sort -o out *", "sort -o out f --output=x"),
    ("sort -o out *", "sort -o other f"),
    ("tool *", "tool --config=x"),
    ("tool *", "tool --outp x"),
    ("tool *", "tool -o x"),
    ("tool *", "tool @args"),
    ("bat *", "bat --pager x"),
    ("man *", "man -P x ls"),
    ("less *", "less +!x f"),
    ("rsync *", "rsync -e x a b"),
    ("npm *", "npm exec x"),
    ("npm *", "npm --prefix x test"),
    ("pip *", "pip install x"),
    ("pip list *", "pip --python x list"),
    ("cargo *", "cargo --config x build"),
    ("cargo *", "cargo install x"),
    ("cargo *", "cargo +evil test"),
    ("go *", "go run x.go"),
    ("go test *", "go test -exec x ./..."),
    ("go test *", "go test --toolexec=x ./..."),
    ("sqlite3 *", "sqlite3 db '.shell x'"),
    ("date *", "date -s x"),
    ("tree *", "tree -o x"),
    ("vim *", "vim -c x f"),
    ("uv *", "uv run x"),
    ("cd *", "cd ../x"),
    ("ldd *", "ldd ./a"),
    ("readelf *", "readelf @options"),
    ("less *", "less --cmd=x f"),
    ("sqlite3 *", "sqlite3 -A -x -f a.sar"),
    ("sqlite3 *", "sqlite3 db 'SELECT 1;\n  .shell id'"),
    ("sqlite3 *", "sqlite3 db 'SELECT \"edit\"(1)'"),
    ("sed *", "sed -- 'w f' x"),
    ("tar *", "tar -- -xf a.tar host:b"),
    ("cargo *", "cargo r"),
    ("cargo *", "cargo b"),
    ("npm *", "npm run-script x"),
    ("npm *", "npm t"),
    ("pnpm *", "pnpm t"),
)  # fmt: skip


@pytest.mark.parametrize(("pattern", "text"), REFUSED)
def test_a_narrow_allow_does_not_cover_what_its_wildcard_hides(pattern, text):
    assert not exactly(pattern, text)
    compiled = compile_command_pattern(pattern)
    assert any(compiled.find_obstacle(each) for each in parse_line(text).commands)


def test_a_literal_word_of_the_rule_allows_the_option_that_it_names():
    for named, text in (
        ("git diff --output *", "git diff --output x"),
        ("git diff --output=*", "git diff --output=x"),
        ("sort -o *", "sort -o x y"),
        ("git -C sub status", "git -C sub status"),
        ("git submodule *", "git submodule status"),
        ("tar -xf *", "tar -xf a.tar"),
    ):
        assert exactly(named, text), named


def test_each_command_of_a_script_needs_its_own_allow():
    line = parse_line("sh -c 'git status; ls'")
    patterns = [compile_command_pattern(text) for text in ("sh -c *", "git status", "ls *")]
    covered = [[p.matches_exactly(each) for p in patterns] for each in line.commands]
    assert covered == [[True, False, False], [False, True, False], [False, False, True]]


@pytest.mark.parametrize("archive", ["-tf a:x", "-tfa:x", "--file=a:x -t", "tf a:x", "-t -f a:x"])
def test_a_wildcard_covers_no_archive_of_another_host(archive):
    (command,) = parse_line(f"tar {archive}").commands

    assert not compile_command_pattern("tar *").matches_exactly(command)
    assert compile_command_pattern(f"tar {archive}").matches_exactly(command)
