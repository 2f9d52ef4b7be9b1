"""The literal command of a program: read without a parser, as the parser would have read it."""

from hypothesis import given
from hypothesis import strategies as st

from paddock.policy.commands import parse_line
from paddock.tools.program import literal_line

WORDS = st.sampled_from(
    [
        *("rm", "-rf", "sh", "-c", "a; b > c", "", "'", "x'y", "env", "A=b", "$x", "*", "{a,b}"),
        *("git", "push", "sudo", "xargs", "a\\", "é\n", "time", "exec", "--", "echo x | sh"),
    ]
)


@given(st.lists(WORDS | st.text(st.characters(codec="utf-8", exclude_characters="\0")), min_size=1))
def test_a_literal_line_means_what_the_same_line_means_to_the_parser(words: list[str]):
    line = literal_line(tuple(words))

    read = parse_line(line)
    parsed = parse_line(line + " ")

    assert meaning(read) == meaning(parsed)


def meaning(line):
    commands = [
        (tuple(word.text for word in command.words), command.readings, command.obstacles)
        for command in line.commands
    ]
    return commands, line.writes
