"""One shell word: from its source to what a program would be given (bash(1), QUOTING).

Quotes go as bash removes them; an expansion makes the word *unknown* until run time; what bash
may turn into something else first (a brace or tilde expansion, a pattern) is marked, since a
narrow allow rests on the plain word; what is not understood is a `WordProblem`, never guessed.
"""

import re
from bisect import bisect_left
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from paddock.limits import path_bytes_max
from paddock.pattern import lazy_pattern

EXPANSIONS_MAX: Final = 64
BRACES_MAX: Final = 12

Char = tuple[str, bool]


class WordProblem(ValueError):
    """A word whose source is not understood."""


class Word(Struct, frozen=True):
    """`text` is the word without its quotes; of an unknown word, its source.

    `unknown` says why run time decides, `inexact` why a narrow allow cannot rest on it; both are
    empty for a plain word. `glob` is a regular expression for what an unquoted pattern may become,
    `name_glob` one for its last component; `alternatives` are what a brace expansion makes.
    """

    text: str
    source: str
    unknown: str = ""
    inexact: str = ""
    glob: str = ""
    name_glob: str = ""
    alternatives: tuple["Word", ...] = ()

    @property
    def is_literal(self) -> bool:
        return not self.unknown and not self.inexact and not self.glob


_SIMPLE: Final = lazy_pattern(r"[A-Za-z0-9_./:=@%+,-]+")
# Whatever bash's lexer ends a word at never stands in one unquoted.
_PIECE: Final = lazy_pattern(
    r"""(?P<plain>[^\\'"$`|&;<>()\s]+)
      | \\(?P<escaped>.)
      | '(?P<single>[^']*)'
      | "(?P<double>(?:[^"\\$`]|\\.|\$(?![\w{(\['"*@\#?$!-]))*)"
      | \$'(?P<ansi>(?:[^'\\]|\\.)*)'
      | (?P<dollar>\$)(?![\w{(\['"*@\#?$!-])
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_IN_DOUBLE: Final = lazy_pattern(r'\\([$`"\\])|\\\n', re.DOTALL)
_RUN_TIME: Final = lazy_pattern(r"[$`]|[<>]\(")
_CONSTANT: Final = lazy_pattern(
    r"""\"\$\(cat[ ]<<(?P<quote>['"]?)(?P<mark>\w+)(?P=quote)\n
        (?P<body>(?:(?!(?P=mark)\n)[^\n]*\n)*+)(?P=mark)\n[ ]*\)\"
    """,
    re.VERBOSE | re.ASCII,
)
"""A substitution of what stands in the line itself, whole: nothing in it is expanded."""


def parse_word(source: str) -> Word:
    """Parse; WordProblem where the source is no single word, or not understood."""
    if _SIMPLE.fullmatch(source):
        return Word(source, source)
    constant = _CONSTANT.fullmatch(source)
    if constant is not None and (constant["quote"] or not re.search(r"[$`\\]", constant["body"])):
        return Word(constant["body"].rstrip("\n"), source)
    if "\\\n" in source and "$" in source:
        # Threat: the join may make an expansion of what stands on both sides of it.
        raise WordProblem(source)
    chars: list[Char] = []
    inexact, at = "", 0
    while at < len(source):
        piece = _PIECE.match(source, at)
        if piece is None:
            if _RUN_TIME.match(source, at) or source[at] == '"':
                return Word(source, source, unknown="an expansion is only known at run time")
            raise WordProblem(source)
        at = piece.end()
        kind = piece.lastgroup or ""
        value = piece[kind]
        if kind in ("plain", "dollar"):
            chars.extend((char, False) for char in value)
            continue
        if kind == "double":
            value = _IN_DOUBLE.sub(_unescape_double, value)
        elif kind == "ansi":
            value = decode_ansi(value)
            inexact = "$'…' is not plain quoting"
        elif kind == "escaped" and value == "\n":
            continue
        chars.extend((char, True) for char in value)
        if not value:
            chars.append(("", True))
    return _word_of(chars, source, inexact)


def bare_word(text: str, inexact: str) -> Word:
    word = Word(text, text, inexact=inexact)
    chars = [(char, False) for char in text] if _is_pattern(text) else []
    return _with_glob(word, chars) if chars else word


def _unescape_double(match: re.Match[str]) -> str:
    return match[1] or ""


def _word_of(chars: list[Char], source: str, inexact: str) -> Word:
    text = "".join(char for char, _ in chars)
    word = Word(text, source, inexact=inexact)
    bare = "".join(char for char, quoted in chars if not quoted)
    if not bare:
        return word
    if not bare.isascii() and any(char.isspace() for char in bare):
        # Threat: a blank that only looks like one; whether it ends the word depends on the locale.
        word = replace(word, inexact="an unquoted blank that is not ASCII")
    if re.search(r"(?:^|[=:])~", source):
        word = replace(word, inexact="a tilde expansion")
    if _is_pattern(bare):
        word = _with_glob(word, chars)
    if "{" in bare and "}" in bare and ("," in bare or ".." in bare):
        word = _with_braces(word, chars)
    return word


def _with_braces(word: Word, chars: list[Char]) -> Word:
    lists = expand_braces(chars)
    if lists is None:
        return replace(word, unknown="a brace expansion too large to follow")
    if len(lists) == 1 and lists[0] == chars:
        return replace(word, inexact="braces")
    words = tuple(_alternative(list_, word.source) for list_ in lists)
    return replace(word, inexact="a brace expansion", alternatives=words)


def _alternative(chars: list[Char], source: str) -> Word:
    text = "".join(char for char, _ in chars)
    bare = "".join(char for char, quoted in chars if not quoted)
    word = Word(text, source, inexact="a brace expansion")
    return _with_glob(word, chars) if _is_pattern(bare) else word


def _is_pattern(bare: str) -> bool:
    return "*" in bare or "?" in bare or 0 <= bare.find("[") < bare.rfind("]") - 1


def _with_glob(word: Word, chars: list[Char]) -> Word:
    slash = max((index for index, (char, _) in enumerate(chars) if char == "/"), default=-1)
    return replace(word, glob=_glob_of(chars), name_glob=_glob_of(chars[slash + 1 :]))


def _glob_of(chars: list[Char]) -> str:
    """Return an expression for the names that the pattern may become; wider, never narrower."""
    if len(chars) > path_bytes_max:
        # No name is so long; and an expression so long takes a while to make.
        return "(?s:.*)"
    parts: list[list[str]] = [[]]
    closings = [index for index, char in enumerate(chars) if char == ("]", False)]
    at = 0
    while at < len(chars):
        char, quoted = chars[at]
        at += 1
        if quoted or char not in "*?[":
            parts[-1].append(re.escape(char))
        elif char == "*":
            # A run of stars is one.
            if parts[-1] or len(parts) == 1:
                parts.append([])
        elif char == "?":
            parts[-1].append(".")
        elif not (closing := _find_closing(chars, closings, at)):
            parts[-1].append(r"\[")
        elif any(one[0] == "[" for one in chars[at : closing - 1]):
            # Threat: a class in a set, `[[:alpha:]]`, holds a bracket that does not close it.
            parts.append([])
            break
        else:
            parts[-1].append(".")
            at = closing
    return f"(?s:{_parts_regex([''.join(part) for part in parts])})"


def _parts_regex(parts: list[str]) -> str:
    # A pattern does not match a leading dot.
    hidden = r"(?!\.)" if parts[0][:1] in ("", ".") else ""
    if len(parts) == 1:
        return hidden + parts[0]
    # Threat: many stars. What stands between two has a fixed length, so that the leftmost
    # match is as good as any, and none is given up again (as in `globs`).
    inner = "".join(f"(?>.*?{part})" for part in parts[1:-1])
    return f"{hidden}{parts[0]}{inner}.*{parts[-1]}"


def _find_closing(chars: list[Char], closings: list[int], at: int) -> int:
    start = at + 1 if at < len(chars) and chars[at][0] in "!^" else at
    found = bisect_left(closings, start + 1)
    return closings[found] + 1 if found < len(closings) else 0


_ESCAPES: Final = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r",
    "t": "\t", "v": "\v", "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip
_ANSI: Final = lazy_pattern(
    r"\\(?:(?P<octal>[0-7]{1,3})|x(?P<hex>[0-9A-Fa-f]{1,2})|u(?P<short>[0-9A-Fa-f]{1,4})"
    r"|U(?P<long>[0-9A-Fa-f]{1,8})|c(?P<control>.)|(?P<one>.))",
    re.DOTALL,
)


def decode_ansi(body: str) -> str:
    r"""Return what `$'body'` stands for (bash(1), QUOTING). `\x` and octal give bytes."""
    made, at = bytearray(), 0
    for match in _ANSI.finditer(body):
        made += body[at : match.start()].encode(errors="surrogateescape")
        made += _ansi_bytes(match)
        at = match.end()
    made += body[at:].encode(errors="surrogateescape")
    # bash keeps strings as C does: a NUL ends them.
    return bytes(made).split(b"\0", 1)[0].decode(errors="surrogateescape")


def _ansi_bytes(match: re.Match[str]) -> bytes:
    if match["octal"]:
        return bytes([int(match["octal"], 8) & 0xFF])
    if match["hex"]:
        return bytes([int(match["hex"], 16)])
    code = match["short"] or match["long"]
    if code:
        point = int(code, 16)
        return chr(point).encode(errors="surrogatepass") if point <= 0x10FFFF else b"?"
    if match["control"]:
        return bytes([ord(match["control"]) & 0x1F])
    one = match["one"]
    return _ESCAPES.get(one, "\\" + one).encode(errors="surrogateescape")


_SEQUENCE: Final = lazy_pattern(r"(-?\d{1,9}|[A-Za-z])\.\.(-?\d{1,9}|[A-Za-z])(?:\.\.(-?\d{1,9}))?")


def expand_braces(chars: list[Char]) -> list[list[Char]] | None:
    if sum(char == ("{", False) for char in chars) > BRACES_MAX:
        return None
    for start, char in enumerate(chars):
        if char != ("{", False):
            continue
        end = _closing_brace(chars, start)
        parts = _brace_parts(chars[start + 1 : end]) if end else []
        if not parts:
            continue
        tails = expand_braces(chars[end + 1 :])
        if tails is None:
            return None
        made: list[list[Char]] = []
        for part in parts:
            inner = expand_braces(part)
            if inner is None or len(made) + len(inner) * len(tails) > EXPANSIONS_MAX:
                return None
            made.extend(chars[:start] + middle + tail for middle in inner for tail in tails)
        return made
    return [chars]


def _closing_brace(chars: list[Char], start: int) -> int:
    depth = 0
    for index in range(start, len(chars)):
        if chars[index] == ("{", False):
            depth += 1
        elif chars[index] == ("}", False):
            depth -= 1
            if depth == 0:
                return index
    return 0


def _brace_parts(inside: list[Char]) -> list[list[Char]]:
    parts: list[list[Char]] = [[]]
    depth = 0
    for char in inside:
        depth += (char == ("{", False)) - (char == ("}", False))
        if char == (",", False) and depth == 0:
            parts.append([])
        else:
            parts[-1].append(char)
    if len(parts) > 1:
        return parts
    sequence = _SEQUENCE.fullmatch("".join(char for char, _ in inside))
    return _sequence(sequence) if sequence else []


def _sequence(match: re.Match[str]) -> list[list[Char]]:
    first, last, step = match[1], match[2], abs(int(match[3] or 1)) or 1
    letters = first.isalpha()
    if letters != last.isalpha():
        return []
    low, high = (ord(first), ord(last)) if letters else (int(first), int(last))
    numbers = range(low, high + 1, step) if low <= high else range(low, high - 1, -step)
    # One more than is allowed is enough for the caller to see that it is too many.
    made = [chr(number) if letters else str(number) for number in numbers[: EXPANSIONS_MAX + 1]]
    return [[(char, False) for char in text] for text in made]


SYSTEM_DIRECTORIES: Final = ("/bin/", "/usr/bin/", "/usr/local/bin/", "/sbin/", "/usr/sbin/")
"""A program in one of these, by its full path, is the program by its name."""


def program_name(path: str) -> str:
    return path.rpartition("/")[2] or path


def exact_program(path: str) -> str:
    """Threat: a file in the workspace that is named like an allowed program."""
    directory, slash, name = path.rpartition("/")
    return name if directory + slash in SYSTEM_DIRECTORIES else path


class Sift(Struct, frozen=True):
    """What becomes of what find finds below `start`: an operation on files, and its target."""

    act: str
    start: str
    tests: tuple[tuple[str, str], ...]
    target: str = ""


class Touch(Struct):
    """The paths that a command touches, as they stand in it; `doubts` are reasons to ask."""

    written: list[str] = field(default_factory=list[str])
    removed: list[str] = field(default_factory=list[str])
    copied: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    doubts: list[str] = field(default_factory=list[str])
    sifted: list[Sift] = field(default_factory=list[Sift])
    reads: list[str] = field(default_factory=list[str])
    makes_link: bool = False

    def add(self, other: "Touch") -> None:
        for name in ("written", "removed", "copied", "doubts", "sifted", "reads"):
            getattr(self, name).extend(getattr(other, name))
        self.makes_link |= other.makes_link


class Reading(Struct, frozen=True):
    """One way to read a command: `head`, then `words` from `start` to `end`."""

    words: tuple[Word, ...]
    start: int
    end: int
    head: tuple[Word, ...] = ()

    def __len__(self) -> int:
        return len(self.head) + self.end - self.start

    def first(self, count: int) -> tuple[Word, ...]:
        if len(self.head) >= count:
            return self.head[:count]
        stop = min(self.end, self.start + count - len(self.head))
        return self.head + self.words[self.start : stop]

    def all_words(self) -> tuple[Word, ...]:
        return self.first(len(self))


class SimpleCommand(Struct, frozen=True):
    """One simple command of a line.

    `readings` are the ways that deny and ask read it, the words as they stand first. `starts` are
    the places in `words` of programs' names: 0, and what wrappers start. `obstacles` say why no
    narrow allow may match it. `is_anything`: too much to be read, any deny and ask concerns it.
    `is_open`: further words come at run time. `writes` are the targets of redirections. One that
    `is_neutral` needs no rule; one that `is_moved` may run in another directory.
    """

    text: str
    words: tuple[Word, ...]
    assignments: tuple[str, ...] = ()
    readings: tuple[Reading, ...] = ()
    starts: tuple[int, ...] = (0,)
    obstacles: tuple[str, ...] = ()
    is_anything: bool = False
    is_open: bool = False
    touch: Touch = field(default_factory=Touch)
    writes: tuple[str, ...] = ()
    is_neutral: bool = False
    is_moved: bool = False

    @property
    def program(self) -> str:
        return self.words[0].text


class CommandLine(Struct, frozen=True):
    """A line of shell, taken apart; paths as they stand in it, unresolved.

    `commands` are its simple commands in source order, those of scripts given as text (`sh -c '…'`)
    included; what a wrapper starts is a reading, not another command. `writes` and `reads` are
    redirections; `touched`, `removed` and `copied` can be read off known programs. `runtime_only`
    says what is only known at run time, `problems` why the line was not understood: no narrow allow
    matches either, and a line with a problem has one of each. `may_be_any`: what is not known may
    be any program. `doubts` are of `runtime_only`, about files. `bound` names the limit that was
    passed, `moves` the directories of the workspace that the line changes to.
    """

    text: str
    commands: tuple[SimpleCommand, ...] = ()
    writes: tuple[str, ...] = ()
    touched: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    copied: tuple[tuple[str, str], ...] = ()
    runtime_only: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    may_be_any: bool = False
    doubts: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    bound: str = ""
    moves: tuple[str, ...] = ()

    @property
    def wanted(self) -> tuple[SimpleCommand, ...]:
        """Return the commands that a rule has to name for the line to be allowed."""
        return tuple(each for each in self.commands if not each.is_neutral) or self.commands
