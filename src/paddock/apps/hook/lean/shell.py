"""A line of plain commands, split without a parser; anything else is declined.

Plain: printable ASCII on one line; words or quotes without expansion; `&&`, `||`, `;` and `|`;
streams thrown away or joined. No program that starts another one, or writes what its words name.

Threat: a line that bash reads otherwise: what is not on these lists is left to the parser; a
property test holds both against each other.
"""

import posix

from paddock.apps.hook.lean.asked import DeclinedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.values.calls import Json

LINE_CHARS_MAX = 2000
WORDS_MAX = 50
_BARE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:=@%+,-")
_IN_PROGRAM = _BARE - frozenset(":=@%+,")
_NOT_IN_DOUBLE = frozenset('$`\\!"')
_JOINERS = ("&&", "||", ";", "|")
_ENDINGS = ("2>&1", "2>/dev/null", ">/dev/null", "1>/dev/null")
_STDIN = frozenset({"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})
_BARE_NAMES = ("HEAD", "objects", "refs")
_GIT_LONG = (
    *("--output", "--git-dir", "--work-tree", "--upload-pack", "--receive-pack", "--exec"),
    *("--open-files-in-pager", "--extcmd"),
)
_GIT_WRITING = (
    *("rm", "mv", "checkout", "restore", "clean", "clone", "init"),
    *("config", "bundle", "worktree", "format-patch", "checkout-index"),
    *("rebase", "bisect", "submodule", "difftool", "filter-branch"),
)
_FIND_STARTING = ("-exec", "-ok")
_FIND_DOING = (*_FIND_STARTING, "-fprint", "-fls", "-delete")

Command = tuple[str, frozenset[str]]


def split_line(text: str, tables: "Json", is_held: bool = False) -> "list[Command]":
    """Return the commands of a plain line. Raises: DeclinedError.

    `is_held`: in the sandbox, and no rule tells programs apart: one that writes its words is plain.
    """
    if len(text) > LINE_CHARS_MAX or not text.isascii() or not text.isprintable():
        raise DeclinedError("a line that is long, or not printable ASCII")
    commands: list[Command] = []
    words: list[str] = []
    start = end = at = 0
    has_ended = False
    while at < len(text):
        if text[at] == " ":
            at += 1
            continue
        joiner = next((sign for sign in _JOINERS if text.startswith(sign, at)), "")
        if joiner:
            commands.append(_command(text[start:end], words, tables, is_held))
            words, has_ended = [], False
            at += len(joiner)
            if text[at : at + 1] not in ("", " "):
                raise DeclinedError("an operator without a blank behind it")
            if joiner != ";" and not text[at:].strip():
                raise DeclinedError("a line that ends in an operator")
            continue
        ending = text[at:].partition(" ")[0]
        if words and ending in _ENDINGS:
            if not text[end - 1].isalnum() and text[end - 1] not in "'\"/":
                raise DeclinedError("a redirection behind a sign")
            has_ended = True
            at += len(ending)
            continue
        if has_ended:
            raise DeclinedError("words behind a redirection")
        if not words:
            start = at
        word, at = _word(text, at, is_first=not words)
        words.append(word)
        end = at
    if words or not commands:
        commands.append(_command(text[start:end], words, tables, is_held))
    return commands


def named_files(text: str) -> "list[str]":
    found: dict[str, None] = {}
    for word in text.split():
        plain = word.replace("'", "").replace('"', "")
        found[plain] = None
        for sign in "=@:":
            found[plain.partition(sign)[2]] = None
        if plain.startswith("-"):
            found[plain[2:]] = None
            found[plain[2:].lstrip("@")] = None
    return [each for each in found if each]


def is_bare_below(directory: str) -> bool:
    """Find whether git takes a folder without `.git` for a repository.

    Threat: an agent writes `HEAD`, `config`, `objects`, `refs`; the configuration names programs.
    """
    here = directory.rstrip("/") or "/"
    while True:
        if _is_there(f"{here}/.git"):
            return False
        if all(_is_there(f"{here}/{name}") for name in _BARE_NAMES):
            return True
        if here in ("", "/"):
            return False
        here = here.rpartition("/")[0]


def _is_there(path: str) -> bool:
    try:
        posix.stat(path)
    except OSError:
        return False
    return True


def _word(text: str, at: int, is_first: bool) -> "tuple[str, int]":
    made = ""
    start = at
    while at < len(text):
        char = text[at]
        if char in " ;":
            break
        if char in "'\"":
            close = text.find(char, at + 1)
            body = text[at + 1 : close]
            if close < 0 or is_first or (char == '"' and not _NOT_IN_DOUBLE.isdisjoint(body)):
                raise DeclinedError("quotes that are not plain")
            made += body
            at = close + 1
            continue
        if char not in _BARE:
            raise DeclinedError("a character that may mean something to a shell")
        made += char
        at += 1
    if at == start or text[start] == "=":
        raise DeclinedError("an empty word, or one that may be an operator")
    return made, at


def _command(text: str, words: "list[str]", tables: "Json", is_held: bool) -> Command:
    if not words or len(words) > WORDS_MAX:
        raise DeclinedError("no command between two operators, or a long one")
    reserved = tables[2]
    if not reserved.isdisjoint(words):
        raise DeclinedError("a word that may be a keyword")
    if any("[" in word and ("$" in word or "`" in word) for word in words):
        raise DeclinedError("a word that may be evaluated")
    _look(words, tables, is_held)
    # Threat: a program that starts another one: wherever a rule's program is named counts.
    apart = (sign if sign in _IN_PROGRAM else " " for sign in " ".join(words))
    parts = [part.rpartition("/")[2] for part in (*words, *"".join(apart).split())]
    if "paddock" in parts:
        raise DeclinedError("a word that may be Paddock's own command line")
    return text, frozenset((*parts, *(part[:3] for part in parts if part[:4] == "git-")))


def _look(words: "list[str]", tables: "Json", is_held: bool) -> None:
    special, writing, _, nesting, starting, given = tables
    if is_held:
        special, writing = starting, ()
    program = words[0]
    if not _IN_PROGRAM.issuperset(program) or program[0] == "-" or program.endswith("/"):
        raise DeclinedError("a program's name that is not plain")
    name = program.rpartition("/")[2]
    rest = words[1:]
    if name in given and not is_held and any(word.startswith("-") for word in rest):
        raise DeclinedError("a program that may start what an option names")
    if name == "git":
        _look_at_git(rest, is_held)
    elif name == "find":
        doing = _FIND_STARTING if is_held else _FIND_DOING
        if any(word.startswith(doing) for word in rest):
            raise DeclinedError("find does more than finding")
    elif name.startswith(("python", "node")) and name not in special:
        _look_at_interpreter(name, rest, tables, is_held)
    elif name in ("sed", "gsed") and not is_held:
        raise DeclinedError("a program that writes and runs what its script names")
    elif name in special or name.startswith(("ld", "pypy", "php", "lua", "tclsh", "perl", "ruby")):
        raise DeclinedError("a program of which more has to be known")
    elif not nesting.get(name, frozenset()).isdisjoint(rest):
        raise DeclinedError("a program that starts another one")
    elif name in writing and any(word.startswith("-") for word in rest):
        raise DeclinedError("a program that may write what an option names")


def _look_at_git(rest: "list[str]", is_held: bool) -> None:
    if not rest or rest[0].startswith("-") or (rest[0] in _GIT_WRITING and not is_held):
        raise DeclinedError("git does more than its words tell here")
    for word in rest:
        if word.startswith("--"):
            name = word.partition("=")[0]
            is_short = any(each.startswith(name) or name.startswith(each) for each in _GIT_LONG)
            if is_short or name.startswith("--config"):
                raise DeclinedError("an option of git that names a place")
        elif word.startswith("-") and not {"C", "o", "c", "O"}.isdisjoint(word):
            raise DeclinedError("an option of git that may name a place")


def _look_at_interpreter(name: str, rest: "list[str]", tables: "Json", is_held: bool) -> None:
    if not _STDIN.isdisjoint(rest) or not rest:
        raise DeclinedError("an interpreter that may read its input")
    if name.startswith("python") and rest[0] == "-m" and len(rest) > 1:
        _look(rest[1:], tables, is_held)
    elif rest[0].startswith("-"):
        raise DeclinedError("options of an interpreter")
