"""Lines of a hundred thousand characters that are made to be slow, in a process of their own.

What a regular expression does shows in no count of steps. So the kernel ends a process that
takes more than a multiple of what any of these needs; without their bounds each would take
from ten seconds to hours.
"""

import resource
import subprocess
import sys

import pytest

from paddock.limits import command_chars_max

CPU_S_MAX = 20
JUDGE = """
import sys
from paddock.policy.commands import compile_command_pattern, parse_line
patterns = [compile_command_pattern(text) for text in ("git push *", "sed *", "awk *")]
for command in parse_line(sys.stdin.read()).commands:
    for pattern in patterns:
        pattern.matches_any_reading(command)
        pattern.matches_exactly(command)
"""

LONG = {
    "a subscript that never ends": ("test '", "[", "'"),
    "a subscript with an expansion": ("test '", "[$", "'"),
    "an assignment of a family of names": ("export 'LD_", "[]", "'"),
    "an assignment of one name": ("export 'PATH", "[]", "'"),
    "a loader of programs": ("'ld-linux", ".so", "\n' x"),
    "an option of sudo": ("sudo '-", "aD", "\n' x"),
    "documents without an end": ("", "<<a\n", ""),
    "documents on one line": ("", "<<a", ""),
    "a document with a long mark": ("<<", "a", "\n"),
    "documents with an end": ("", "cat <<a\na\n", ""),
    "quotes in quotes": ("", "\"'", ""),
    "one word of many pieces": ("echo ", "'a'", ""),
    "many escapes": ("echo ", r"\a", ""),
    "a pattern with a long tail": ("*" + "[" * 3000 + "'", "a", "'/x y"),
    "braces with a long tail": ("{a,b}" * 6 + "*'", "a", "'/x y"),
    "a script of sed": ("sed '", "p;", "'"),
    "a set of sed": ("sed 's/", "[a", "'"),
    "an address of sed": ("sed '", "/a", "'"),
    "a program of awk": ("awk '", "|", "'"),
    "wrappers in a script": ("env -S '", "env ", "'"),
}


def bounded() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S_MAX, CPU_S_MAX))


@pytest.mark.parametrize(("head", "unit", "tail"), LONG.values(), ids=LONG)
def test_a_long_hostile_line_is_judged(head: str, unit: str, tail: str) -> None:
    room = command_chars_max - len(head) - len(tail)
    line = head + unit * (room // len(unit)) + tail
    ran = subprocess.run(
        [sys.executable, "-c", JUDGE], input=line, text=True, preexec_fn=bounded, check=False
    )
    assert ran.returncode == 0
