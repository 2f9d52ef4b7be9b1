"""Properties of lines of shell: total, literal, agreeing with shlex and with bash."""

import shlex
import shutil
import subprocess

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from paddock.policy.commands import CommandLine, compile_command_pattern, parse_line
from paddock.policy.commands.walk import RESERVED

TOKENS = st.sampled_from(
    ["git", "push", "a", "-x", "$x", "$(", ")", "(", "{", "}", "'", '"', "`", "\\", "\n", " ", " ",
     " ", ";", "&", "|", "<", ">", "<<EOF\n", "\nEOF\n", "#", "*", "{a,b}", "=", "$'", "if ", "then ",
     "fi", "for ", "do ", "done", "case ", "in ", "esac", "[[ ", " ]]", "!", "é", "\t", "\\\n", "~",
     "A=b ", "sh -c ", "env ", "eval ", "2>&1", "\0", "\ud800"]
)  # fmt: skip
SHELLISH = st.lists(TOKENS, max_size=25).map("".join)
PLAIN_WORDS = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp", "Cf")),
    min_size=1,
    max_size=12,
)
WRAPPERS = st.sampled_from(
    ["env", "env -i A=b", "command", "nice -n 5", "nohup", "time", "timeout 5", "timeout -k 1 5",
     "stdbuf -oL", "setsid -w", "exec", "sudo -u me", "xargs -0", "busybox", "ionice -c 2",
     "unshare --anything x", "A=b", "> out"]
)  # fmt: skip


@given(st.one_of(st.text(max_size=80), SHELLISH))
def test_any_text_becomes_a_line(text):
    line = parse_line(text)
    assert isinstance(line, CommandLine)
    assert line.text == text
    assert bool(line.runtime_only) or not line.problems
    assert line == parse_line(text)


@given(st.lists(PLAIN_WORDS, min_size=1, max_size=6))
def test_quoted_words_come_back_as_they_were(words):
    text = shlex.join(words)
    assume(words[0] == shlex.quote(words[0]) or "=" not in words[0])
    # What shlex leaves bare is a keyword to a shell, in the first place.
    assume(words[0] not in RESERVED)
    # The grammar knows no program of such a name: a line in doubt, which is safe, and rare.
    assume(words[0] != shlex.quote(words[0]) or not {"@", "%"} & set(words[0]))
    line = parse_line(text)
    assert line.problems == ()
    assert [[word.text for word in each.words] for each in line.commands[:1]] == [words]


@given(
    st.from_regex(
        r"[a-z]+( [-a-z0-9./=:@%+,]+| '[^'\x00-\x1f]*'| \"[^\"$`\\\\\x00-\x1f]*\")*", fullmatch=True
    )
)
def test_words_agree_with_shlex(text):
    assume(text.isprintable())
    assume(
        text.split()[0]
        not in {
            "if",
            "then",
            "do",
            "for",
            "case",
            "fi",
            "in",
            "while",
            "until",
            "done",
            "esac",
            "else",
            "elif",
            "function",
            "select",
            "coproc",
        }
    )
    line = parse_line(text)
    assert [[word.text for word in each.words] for each in line.commands[:1]] == [shlex.split(text)]


@given(st.lists(WRAPPERS, max_size=4), st.sampled_from(["git push", "git push origin main"]))
def test_a_wrapper_never_hides_a_command_from_a_deny(wrappers, command):
    line = parse_line(" ".join([*wrappers, command]))
    deny = compile_command_pattern("git push *")
    assert any(deny.matches_any_reading(each) for each in line.commands)


@given(st.integers(1, 6), st.sampled_from(["sh -c", "bash -lc", "eval", "dash -ec"]))
def test_scripts_in_scripts_do_not_hide_a_command_from_a_deny(depth, shell):
    text = "git push"
    for _ in range(depth):
        text = f"{shell} {shlex.quote(text)}"
    deny = compile_command_pattern("git push *")
    assert any(deny.matches_any_reading(each) for each in parse_line(text).commands)


@given(SHELLISH, SHELLISH)
def test_what_stands_around_a_command_never_hides_it_from_a_deny(before, after):
    line = parse_line(f"{before}\ngit push\n{after}")
    assume(not _is_quoted(before))
    deny = compile_command_pattern("git push *")
    assert any(deny.matches_any_reading(each) for each in line.commands)


def _is_quoted(text):
    """Whether what follows may stand in quotes, a comment, a document or a word."""
    return any(
        mark in text for mark in ("'", '"', "`", "\\", "<<", "#", "$", "(", "{", "case", "[[")
    )


@given(
    st.one_of(SHELLISH, SHELLISH.map("git ".__add__)), st.sampled_from(["git *", "a *", "env *"])
)
def test_what_matches_exactly_is_literal_and_known_beforehand(text, pattern):
    allow = compile_command_pattern(pattern)
    line = parse_line(text)
    for each in line.commands:
        if allow.matches_exactly(each):
            assert line.runtime_only == ()
            assert line.problems == ()
            assert each.assignments == ()
            assert all(word.is_literal or word.glob for word in each.words)
            assert allow.matches_any_reading(each)


@pytest.mark.skipif(shutil.which("bash") is None, reason="this machine has no bash")
@settings(max_examples=40)
@given(st.lists(SHELLISH, min_size=25, max_size=25))
def test_what_bash_rejects_has_problems(texts):
    # Two dozen at a time: a process for each would be most of the work.
    clean = [text for text in texts if "\0" not in text and "\ud800" not in text]
    script = "\n".join(
        f"bash -n -c -- {shlex.quote(text)} 2>/dev/null || echo {number}"
        for number, text in enumerate(clean)
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=False)
    for number in map(int, done.stdout.split()):
        line = parse_line(clean[number])
        assert line.problems or line.runtime_only, clean[number]
