"""Lines that are made to be slow: how many steps they take."""

import cProfile

import pytest

from paddock.limits import command_code_chars_max
from paddock.policy.commands import compile_command_pattern, parse_line

PATTERNS = [compile_command_pattern(text) for text in ("git push *", "sed *", "awk *")]
CALLS_MAX = 10_000_000
"""What a line may cost, in calls of functions. Without its bounds one takes hundreds of millions."""
CODE = {
    "stars in a directory": ("", "*a", "/x y"),
    "scripts to the end of the line": ("", "env -S ", ""),
    "a wrapper that cannot be read": ("env -X ", "env ", ""),
    "sub-commands": ("", "uv run ", ""),
    "shells": ("", "bash -c ", ""),
    "aliases": ("", "git -c alias.a=b ", ""),
    "what find runs": ("", "find x -exec cp {} y ", ""),
    "what is removed": ("env -X ", "rm ", ""),
    "builtins with subscripts": ("env -X ", "[ ", ""),
    "braces": ("mv ", "{a,b}{c,d} ", ""),
    "commands": ("", "a;", ""),
    "groups": ("", "(", ""),
}


def made(parts: tuple[str, str, str], size: int) -> str:
    head, unit, tail = parts
    return head + unit * ((size - len(head) - len(tail)) // len(unit)) + tail


def judge(text: str) -> None:
    """What a policy asks of a line."""
    for command in parse_line(text).commands:
        for pattern in PATTERNS:
            pattern.matches_any_reading(command)
            pattern.matches_exactly(command)


def calls_of(text: str) -> int:
    profile = cProfile.Profile()
    profile.runcall(judge, text)
    return sum(each.callcount for each in profile.getstats())


@pytest.mark.parametrize("parts", CODE.values(), ids=CODE)
def test_a_hostile_line_is_a_bounded_number_of_steps(parts: tuple[str, str, str]) -> None:
    assert calls_of(made(parts, command_code_chars_max)) < CALLS_MAX


STARS = "*a" * 8 + "/" + "a" * 120


@pytest.mark.parametrize(
    ("program", "is_denied"),
    [
        ("*a" * 8 + "/git", True),
        ("*a" * 8 + "/g*", True),
        ("*a" * 8 + "/gi*x", False),
        ("/usr/b[i]n/g?t", True),
        ("/usr/b[i]n/g?g", False),
        ("*" * 20 + "g*i*t*", True),
        ("*" * 20 + "g*i*t*x", False),
        ("g*i*t*" * 9, False),
        (STARS, False),
        ("[g]it", True),
        ("[]g]it", True),
        ("*" + "'" + "a" * 5000 + "'", True),
    ],
)
def test_a_pattern_for_a_program_is_held_against_what_it_may_become(
    program: str, is_denied: bool
) -> None:
    deny = compile_command_pattern("git push *")
    commands = parse_line(f"{program} push x").commands
    assert any(deny.matches_any_reading(command) for command in commands) is is_denied
    # Either way it is no plain program, and no narrow rule covers it.
    allow = compile_command_pattern("git *")
    assert not any(allow.matches_exactly(command) for command in commands)


TOO_MUCH = "scripts inside scripts, too many to follow"


@pytest.mark.parametrize(
    "text",
    [
        " ".join(f"env -S 'a {number}'" for number in range(300)),
        " ".join(f"sh -c 'a{number}';" for number in range(300)),
        "; ".join(f"sh -c 'a {'b ' * 1000}{number}'" for number in range(5)),
        "env " * 25_000,
    ],
)
def test_what_is_too_much_to_read_meets_every_deny_and_no_narrow_allow(text: str) -> None:
    line = parse_line(text)
    assert TOO_MUCH in line.problems
    deny = compile_command_pattern("git push *")
    assert any(deny.matches_any_reading(command) for command in line.commands)
    allows = [compile_command_pattern(each) for each in ("env *", "sh *", "sh -c *")]
    last = line.commands[-1]
    assert not any(allow.matches_exactly(last) for allow in allows)
    assert compile_command_pattern("*").matches_exactly(last)


@pytest.mark.parametrize(
    "text",
    [
        f"bash -lc 'cat > f <<\"E\"\n{'x < y | z; (' * 5000}\nE'",
        f"bash -c '{'true; ' * 600}'",
        "; ".join(f"sh -c 'ls a{number}'" for number in range(200)),
    ],
)
def test_scripts_of_an_ordinary_size_are_read(text: str) -> None:
    line = parse_line(text)
    assert line.problems == ()
    deny = compile_command_pattern("git push *")
    assert not any(deny.matches_any_reading(command) for command in line.commands)


@pytest.mark.parametrize(
    ("text", "is_doubtful"),
    [
        ("test 'a[$(id)]'", True),
        ("test 'a[`id`]'", True),
        ("test '[[[['", False),
        ("test '$x['", False),
        ("test '$[$x'", True),
    ],
)
def test_an_expansion_behind_a_bracket_is_a_subscript(text: str, is_doubtful: bool) -> None:
    assert ("test evaluates a subscript" in parse_line(text).runtime_only) is is_doubtful


@pytest.mark.parametrize(
    ("text", "is_doubtful"),
    [
        ("env LD_PRELOAD=x ls", True),
        ("export 'PATH[0]=x'", True),
        ("export 'BASH_ENV[0]+=x'", True),
        ("declare 'PATH[0\n]=x'", True),
        ("env NODE_OPTIONS=x ls", True),
        ("env NODE_ENV=x ls", False),
        ("env -u A -i PYTHONPATH=x ls", True),
        ("env ls PYTHONPATH=x", False),
        ("export 'LD_[]'", False),
    ],
)
def test_an_assignment_that_decides_what_runs_is_seen(text: str, is_doubtful: bool) -> None:
    said = "the environment decides which program runs"
    assert (said in parse_line(text).runtime_only) is is_doubtful
