"""Regular expressions that are compiled late are right all the same, and do what others do."""

import re
import subprocess
import sys

import pytest

from paddock.pattern import lazy_pattern
from tests.support.repository import PACKAGE, modules

COMPILING = """
import importlib, re, sys
import paddock.pattern

count = 0

def compiled(source, flags=0):
    global count
    count += 1
    return re.compile(source, flags)

paddock.pattern.lazy_pattern = compiled
for name in sys.argv[1:]:
    importlib.import_module(name)
print(count)
"""


def users() -> list[str]:
    """The modules that write a late pattern down."""
    return [
        ".".join(("paddock", *path.relative_to(PACKAGE).with_suffix("").parts))
        for path in modules()
        if "import lazy_pattern" in path.read_text(encoding="utf-8")
    ]


def test_every_pattern_of_the_package_compiles():
    done = subprocess.run(
        [sys.executable, "-c", COMPILING, *users()], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= len(users())


def test_a_late_pattern_is_compiled_at_its_first_use_and_not_before():
    broken = lazy_pattern("(")

    with pytest.raises(re.error, match="unterminated subpattern"):
        broken.search("")


def test_a_late_pattern_finds_what_a_compiled_one_finds():
    late, early = lazy_pattern(r"a(b+)", re.IGNORECASE), re.compile(r"a(b+)", re.IGNORECASE)

    assert late.findall("ab ABB b") == early.findall("ab ABB b") == ["b", "BB"]
    assert late.sub("-", "xAbx", count=1) == "x-x"
    assert (late.pattern, late.flags, late.groups) == (early.pattern, early.flags, early.groups)
    assert lazy_pattern(rb"\d").fullmatch(b"7")
