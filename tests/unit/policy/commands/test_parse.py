"""What a line is taken apart into, and what is said to be in doubt."""

import subprocess
import sys

import pytest

from paddock.limits import command_chars_max, command_depth_max
from paddock.policy.commands import parse_line
from tests.unit.policy.commands.touching import copied_by, removed_by, written_by


def words(text):
    return [[word.text for word in each.words] for each in parse_line(text).commands]


def test_a_plain_line_is_its_commands_in_order():
    line = parse_line("git diff HEAD && ls -l | wc -l; echo 'a b' &")
    assert words(line.text) == [
        ["git", "diff", "HEAD"],
        ["ls", "-l"],
        ["wc", "-l"],
        ["echo", "a b"],
    ]
    assert (line.writes, written_by(line), line.runtime_only, line.problems) == ((), (), (), ())
    assert line.commands
    assert all(each.obstacles == () for each in line.commands)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("echo 'it'\"'\"'s'", [["echo", "it's"]]),
        (r"echo a\ b \$x", [["echo", "a b", "$x"]]),
        (r'echo "a\"b\\c\d" "\$x"', [["echo", r"a\"b\c\d".replace('\\"', '"'), "$x"]]),
        ("echo '' \"\"", [["echo", "", ""]]),
        (r"echo $'a\tb\x41\'\101\u00e9'", [["echo", "a\tbA'Aé"]]),
        (r"echo $'a\0b'", [["echo", "a"]]),
        ("echo a#b # c", [["echo", "a#b"]]),
        ("echo a \\\n  b", [["echo", "a", "b"]]),
        ("echo x > out y", [["echo", "x", "y"]]),
        ("> out echo x", [["echo", "x"]]),
        ("if a; then b; elif c; then d; else e; fi", [["a"], ["b"], ["c"], ["d"], ["e"]]),
        ("[ -f x -a y = z ]", [["[", "-f", "x", "-a", "y", "=", "z", "]"]]),
        ("export A=1 B", [["export", "A=1", "B"]]),
        ("echo $", [["echo", "$"]]),
        ("echo é ü", [["echo", "é", "ü"]]),
    ],
)
def test_words_are_what_bash_makes_of_them(text, expected):
    assert words(text) == expected
    assert parse_line(text).problems == ()


@pytest.mark.parametrize(
    "text", ["", " ", "\n", "# only a comment", "> out", "x=1", "[[ -f x ]]", "2>&1"]
)
def test_a_line_without_a_simple_command_is_empty(text):
    assert parse_line(text).commands == ()


@pytest.mark.parametrize(
    ("text", "writes"),
    [
        ("a > b", ("b",)),
        ("a >> b 2> c", ("b", "c")),
        ("a >| b", ("b",)),
        ("a &> b", ("b",)),
        ("a &>> b", ("b",)),
        ("a >& b", ("b",)),
        ("a 2>&1 >&2 3>&- 4<&0", ()),
        ("a < b", ()),
        ("a <<< b", ()),
        ("a > /dev/null 2> /dev/stderr", ()),
        ("a > 'x y'", ("x y",)),
        ("{ a; } > b", ("b",)),
        ("a | b > c | d > e", ("c", "e")),
        ("cat <<'EOF' > b\nx > y\nEOF", ("b",)),
        ("sh -c 'a > b'", ("b",)),
        ("echo $(a > b)", ("b",)),
    ],
)
def test_the_targets_of_redirections_are_writes(text, writes):
    assert parse_line(text).writes == writes


def test_a_damaged_line_still_tells_what_it_would_write():
    line = parse_line("a <> b; c > d (")
    assert line.problems
    assert set(line.writes) >= {"b", "d"}


@pytest.mark.parametrize(
    ("text", "touched"),
    [
        ("tee -a x y", ("x", "y")),
        ("sed -i s/a/b/ f g", ("f", "g")),
        ("sed -i.bak -e s/a/b/ f", ("f", "f.bak")),
        ("sed --in-place=.bak s/a/b/ f", ("f", "f.bak")),
        ("sed -n p f", ()),
        ("cp a b.txt", ("b.txt",)),
        ("cp a dir", ("dir", "dir/a")),
        ("cp -r x/.env .", (".", "./.env")),
        ("cp -t dir a b", ("dir", "dir/a", "dir/b")),
        ("cp -i a.txt b.txt", ("b.txt",)),
        ("cp -t v1.0 a", ("v1.0", "v1.0/a")),
        ("install -d x y.d", ("x", "y.d")),
        ("rsync -t a b.txt", ("b.txt",)),
        ("sed -ie s/a/b/ f", ("f", "fe")),
        ("sed -i -ne p f", ("f",)),
        ("sed -i.bak.e s/a/b/ f", ("f", "f.bak.e")),
        ("sed -i --expression=s/a/b/ f", ("f",)),
        ("sed -i --file x f", ("f",)),
        ("sed --i s/a/b/ f", ("f",)),
        ("git -C sub checkout -- x", ("sub", "sub/x")),
        ("mv a b.txt", ("b.txt",)),
        ("mv a dir", ("dir", "dir/a")),
        ("mv -t dir a b", ("dir", "dir/a", "dir/b")),
        ("install -m 644 a b.txt", ("b.txt",)),
        ("ln -s a b.txt", ("b.txt",)),
        ("touch -d now x", ("x",)),
        ("mkdir -p -m 700 x/y", ("x/y",)),
        ("dd if=a of=b", ("b",)),
        ("git -C sub status", ()),
        ("git -C sub add .", ("sub",)),
        ("git diff --output=x", ("x",)),
        ("git checkout x", ("x",)),
        ("git mv a b.txt", ("b.txt",)),
        ("truncate -s 0 x", ("x",)),
        ("chmod 600 x", ("x",)),
        ("sort a -o b", ("b",)),
        ("sort -uob a", ("b",)),
        ("curl -o x http://h/", ("x",)),
        ("find . -fprint x", ("x",)),
        ("uniq a b", ("b",)),
        ("perl -pi -e s/a/b/ f", ("f",)),
        ("sudo tee x", ("x",)),
        ("sh -c 'tee x'", ("x",)),
        ("cat x", ()),
        ("tee -- -x", ("-x",)),
        ("{tee,x,y}", ("x", "y")),
        ("rm x; touch x", ("x",)),
    ],
)
def test_write_targets_are_read_off_known_programs(text, touched):
    assert set(written_by(parse_line(text))) >= set(touched)
    if not parse_line(text).problems:
        assert written_by(parse_line(text)) == touched


@pytest.mark.parametrize(
    ("text", "removed"),
    [
        ("rm -rf x y", ("x", "y")),
        ("rm -- -x", ("-x",)),
        ("rmdir x", ("x",)),
        ("unlink x", ("x",)),
        ("mv a b", ("a",)),
        ("mv a b dir", ("a", "b")),
        ("mv -t dir a b", ("a", "b")),
        ("mv --target-directory=dir a", ("a",)),
        ("git rm -r x", ("x",)),
        ("git mv a b", ("a",)),
        ("git -C sub rm x", ("sub/x",)),
        ("git -Csub -C deep mv a b", ("sub/deep/a",)),
        ("find -delete", (".",)),
        ("find -L x -delete", ("x",)),
        ("find x -exec rm {} +", ("x",)),
        ("find x -exec cat {} +", ()),
        ("find x y -newer z -delete", ("x", "y")),
        ("find x -name y", ()),
        ("cp a b", ()),
        ("tee x", ()),
        ("sudo rm x", ("x",)),
        ("sh -c 'rm x'", ("x",)),
        ("{rm,x,y}", ("x", "y")),
        ("rm x; touch x", ("x",)),
    ],
)
def test_what_would_be_gone_is_read_off_known_programs(text, removed):
    assert set(removed_by(parse_line(text))) >= set(removed)
    if not parse_line(text).problems:
        assert removed_by(parse_line(text)) == removed


@pytest.mark.parametrize(
    "text",
    [
        "echo $x", 'echo "$x"', "echo $(a)", "echo `a`", "$x y", "echo ${x}", "cat <(a)", "a > $x",
        "eval a", "source a", ". a", "sh -c \"$x\"", "a | sh", "bash -s", "python3 -", "a | python3",
        "python3 <<'EOF'\nx\nEOF", "xargs rm", "parallel rm", "(( x ))", "echo $((1))", "/bin/r? x",
        "[[ -v x ]]; a", "[[ x -eq 1 ]]; a", "find . -exec {} ';'", "PATH=. a", "LD_PRELOAD=x a",
        "env PATH=. a", "export GIT_DIR=x; a", "env -S 'a b'", "cat <<EOF\n$x\nEOF", "for ((;;)); do a; done",
        "x[y]=1; a", "git --config-env=a=b c", "a > x*",
    ],
)  # fmt: skip
def test_what_is_only_known_at_run_time_is_said(text):
    line = parse_line(text)
    assert line.runtime_only
    assert line.problems == ()


@pytest.mark.parametrize(
    "text",
    [
        "echo 'a $x `b` $(c)'", r"echo \$x \`b\`", "cat <<'EOF'\n$x\nEOF", "cat <<EOF\nplain\nEOF",
        "echo \"plain text\"", "ls *.py", "bash script.sh", "python3 -c 'print(1)'", "python3 x.py < in",
        "[[ -f x && a == b* ]] && c", "sh -c 'echo a'", "find . -exec grep x {} +", "X=1 make",
    ],
)  # fmt: skip
def test_plain_text_is_known_beforehand(text):
    line = parse_line(text)
    assert (line.runtime_only, line.problems) == ((), ())


@pytest.mark.parametrize(
    "text",
    [
        "echo 'open", 'echo "open', "(", "a |", "a &&", "if a; then b", "a )", "echo $(", "case x in",
        "a\0b", "a\x1b[0m", "a\u202eb", "a\ud800", "cat <<EOF\nx", "{fd}> x a", "a {fd}>x", "coproc a",
        "a ;; b", "gi\\\nt status", "cat <<A <<B\nA\nB", "cat <<E'O'F\nx\nEOF", "a <> b", "a \r\n b",
        "echo $\"x\"", "1x=2", "a #b\n)", "[ a > b ]", "a\n; b", "echo ``", "time { a; }", "time -p for x in a; do b; done", "! time if a; then b; fi",
        "f[[ -f x ]] p", "[[[[ -f x ]]", "p \\ \n", "p $\\\n[1]", "a <<< b\\\n2>c", "p ``x y",
        "p {a}<<<x", "a\n{}", "p -<<'EOF'\nx\nEOF", "A=\\\n\nb",
    ],
)  # fmt: skip
def test_what_is_not_understood_is_a_problem_and_never_exact(text):
    line = parse_line(text)
    assert line.problems
    assert line.runtime_only
    assert all(each.obstacles for each in line.commands)


def test_a_line_over_the_limits_is_a_problem():
    assert parse_line("echo " + "a" * command_chars_max).problems
    assert parse_line("true; " * 3000).problems
    nested = "true"
    for _ in range(command_depth_max + 2):
        nested = f"eval {nested}"
    assert parse_line(nested).runtime_only


def test_long_text_in_quotes_and_documents_is_no_problem():
    body = "x < y | z; (\n" * 3000
    assert parse_line(f"cat > f <<'EOF'\n{body}EOF").problems == ()
    assert parse_line("echo '" + "a;b|" * 5000 + "'").problems == ()


@pytest.mark.parametrize(
    "unit", ["<", "a=(", "for ((;;", "-|", ")", "$(", "`", "{|", "'", '"', "env "]
)
def test_hostile_repetition_ends(unit):
    assert parse_line(unit * 4000) is not None
    assert parse_line(unit * (100_001 // len(unit))) is not None


def test_the_grammar_is_loaded_by_the_first_parse_alone():
    script = (
        "import sys; import paddock.policy.commands as c; c.compile_command_pattern('a *');"
        "before = 'tree_sitter' in sys.modules; c.parse_line('a');"
        "print(before, 'tree_sitter' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stdout.split() == [b"False", b"True"]


@pytest.mark.parametrize(
    ("text", "copied"),
    [
        ("rsync -a . host:dir", ()),
        ("rsync -a . ./host:dir", ((".", "./host:dir"),)),
        ("scp a user@host:", ()),
        ("scp host:a b", (("host:a", "b"),)),
        ("cp a b:c", (("a", "b:c"),)),
    ],
)
def test_what_goes_to_another_machine_arrives_nowhere_here(text, copied):
    assert copied_by(parse_line(text)) == copied


@pytest.mark.parametrize(
    "text",
    [
        'export "$(rm x)"',
        "unset $(rm x)",
        "declare `rm x`",
        "typeset ${y:-$(rm x)}",
        'readonly A=1 "$(rm x)"',
        "local <(rm x)",
        "export A=$(rm x)",
        "ls $(rm x)",
    ],
)
def test_what_the_words_of_a_declaration_start_is_a_command_of_the_line(text):
    line = parse_line(text)
    assert "rm x" in [command.text for command in line.commands]
    assert removed_by(line) == ("x",)


@pytest.mark.parametrize("text", ["ls </dev/tcp/127.0.0.1/80", "exec 3<>/dev/udp/h/53"])
def test_a_connection_that_bash_opens_is_only_known_at_run_time(text):
    assert "a redirection opens a connection" in parse_line(text).runtime_only
