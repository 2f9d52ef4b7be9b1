"""Ctrl-C while the program `paddock` loads: it ends as others do, without a traceback."""

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, sys
module = sys.argv[1]
class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
ignored = sys.argv[2] == "ignored"
signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.default_int_handler)
sys.argv[1:] = ["--help"] if module != "paddock.apps.cli.call" else ["tools"]
from paddock.apps.cli.entry import console
console()
"""


def interrupted(module: str, *, sigint: str = "usual") -> tuple[int, str]:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, module, sigint], capture_output=True, text=True, check=False
    )
    return ran.returncode, ran.stderr


@pytest.mark.parametrize(
    "module", ["paddock.apps.cli.main", "paddock.apps.console", "paddock.errors", "msgspec"]
)
def test_while_it_loads_it_ends_without_a_word(module):
    assert interrupted(module) == (-signal.SIGINT, "")


def test_while_a_command_loads_it_says_so():
    assert interrupted("paddock.apps.cli.call") == (130, "interrupted\n")


def test_who_ignores_the_signal_goes_on_ignoring_it():
    assert interrupted("paddock.apps.cli.main", sigint="ignored") == (0, "")


def test_the_program_begins_there(request):
    text = (request.config.rootpath / "pyproject.toml").read_text()
    assert 'paddock = "paddock.apps.cli.entry:console"' in text


def test_little_loads_before_it_is_listened_to():
    program = (
        "import sys; before = set(sys.modules); import paddock.apps.cli.entry;"
        " print(*sorted({'enum', 're', 'signal', 'typing'} & set(sys.modules) - before))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == []


END = """
import atexit, sys, threading
from paddock.apps.cli.entry import console
left = sys.argv.pop(1)
if left == "called":
    atexit.register(print, "called")
if left == "ran":
    main = threading.main_thread()
    threading.Thread(target=lambda: (main.join(), print("ran"))).start()
console()
"""


@pytest.mark.parametrize("left", ["nothing", "called", "ran"])
def test_what_waits_for_the_end_has_its_turn_and_what_was_printed_is_out(left: str) -> None:
    last = "" if left == "nothing" else f"{left}\n"
    for option, status, ends in (("--version", 0, f"paddock 0.1.0\n{last}"), ("--no", 2, last)):
        ran = subprocess.run(
            [sys.executable, "-c", END, left, option], capture_output=True, text=True, check=False
        )
        assert (ran.returncode, ran.stdout) == (status, ends)
        assert ("unknown option" in ran.stderr) is (status == 2)


LATE = """
import atexit, sys
from paddock.apps.cli.entry import console
def look():
    late = ("argparse", "gettext", "msgspec.inspect", "msgspec.yaml", "urllib.parse")
    print(*(name for name in late if name in sys.modules))
    import argparse, msgspec.toml
    from pathlib import Path
    print(Path("/a b").as_uri(), msgspec.json.schema(int, ref_template="{name}"))
    print(msgspec.inspect.type_info(bool), msgspec.toml.decode.__module__)
    print(argparse.ngettext("a", "b", 2), msgspec.inspect is sys.modules["msgspec.inspect"])
atexit.register(look)
console()
"""


def test_what_it_does_not_load_is_there_for_whoever_wants_it() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", LATE, "--version"], capture_output=True, text=True, check=True
    )
    assert ran.stdout.splitlines()[1:] == [
        "argparse",
        "file:///a%20b {'type': 'integer'}",
        "BoolType() msgspec.toml",
        "b True",
    ]
