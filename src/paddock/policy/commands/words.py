"""Parse one shell word: from its source to the argument that a program gets (bash(1), QUOTING).

Quotes are removed as bash does; an expansion makes the word *unknown* until run time; a word
that bash may change first (a brace or tilde expansion, a pattern) is marked, since a narrow
allow relies on the plain word; unknown syntax is a `WordProblem`, never guessed.
"""

import re
from bisect import bisect_left
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from paddock.limits import path_bytes_max
from paddock.pattern import lazy_pattern
from paddock.policy.compiled import ONE, RUN

EXPANSIONS_MAX: Final = 64
BRACES_MAX: Final = 12

Char = tuple[str, bool]
Glob = tuple[str | int, ...]
"""A pattern of a name in the form of `policy.compiled`: text, `RUN` and `ONE`."""


class WordProblem(ValueError):
    """A word whose source is not understood."""


class Word(Struct, frozen=True):
    """`text` is the word without its quotes; for an unknown word, its source.

    `unknown` says why its value is known only at run time, `inexact` why a narrow allow cannot
    rely on it; both are empty for a plain word. `glob` is an unquoted pattern, `name_glob` its
    last component; `alternatives` are the results of a brace expansion.
    """

    text: str
    source: str
    unknown: str = ""
    inexact: str = ""
    glob: Glob = ()
    name_glob: Glob = ()
    alternatives: tuple["Word", ...] = ()

    @property
    def is_literal(self) -> bool:
        return not self.unknown and not self.inexact and not self.glob


_SIMPLE: Final = lazy_pattern(r"[A-Za-z0-9_./:=@%+,-]+")
# An unquoted word never contains a character at which bash's lexer ends a word.
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
        (?P<body>(?:(?!(?P=mark)\n)[^\n]*\n)*)(?P=mark)\n[ ]*\)\"
    """,
    re.VERBOSE | re.ASCII,
)
"""A substitution of a here-document in the line itself, in which nothing is expanded."""


def parse_word(source: str) -> Word:
    """Parse; WordProblem if the source is not a single word, or not understood."""
    if _SIMPLE.fullmatch(source):
        return Word(source, source)
    constant = _CONSTANT.fullmatch(source)
    if constant is not None and (constant["quote"] or not re.search(r"[$`\\]", constant["body"])):
        return Word(constant["body"].rstrip("\n"), source)
    if "\\\n" in source and "$" in source:
        # Threat: joining the lines may form an expansion of the text on both sides.
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
            value = _IN_DOUBLE.sub(lambda found: found[1] or "", value)
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
    return _with_glob(Word(text, text, inexact=inexact), [(char, False) for char in text])


def _word_of(chars: list[Char], source: str, inexact: str) -> Word:
    word, bare = Word(_text_of(chars), source, inexact=inexact), _bare_of(chars)
    if not bare.isascii() and any(char.isspace() for char in bare):
        # Threat: whether a Unicode blank ends the word depends on the locale.
        word = replace(word, inexact="an unquoted blank that is not ASCII")
    if bare and re.search(r"(?:^|[=:])~", source):
        word = replace(word, inexact="a tilde expansion")
    word = _with_glob(word, chars)
    if "{" not in bare or "}" not in bare or not ("," in bare or ".." in bare):
        return word
    lists = expand_braces(chars)
    if lists is None:
        return replace(word, unknown="a brace expansion too large to follow")
    if lists == [chars]:
        return replace(word, inexact="braces")
    why = "a brace expansion"
    words = (_with_glob(Word(_text_of(each), source, inexact=why), each) for each in lists)
    return replace(word, inexact=why, alternatives=tuple(words))


def _text_of(chars: list[Char]) -> str:
    return "".join(char for char, _ in chars)


def _bare_of(chars: list[Char]) -> str:
    return "".join(char for char, quoted in chars if not quoted)


def _with_glob(word: Word, chars: list[Char]) -> Word:
    bare = _bare_of(chars)
    if not ("*" in bare or "?" in bare or 0 <= bare.find("[") < bare.rfind("]") - 1):
        return word
    slash = max((index for index, (char, _) in enumerate(chars) if char == "/"), default=-1)
    return replace(word, glob=_glob_of(chars), name_glob=_glob_of(chars[slash + 1 :]))


def _glob_of(chars: list[Char]) -> Glob:
    """Return a pattern for all names that it may expand to; it may be wider, never narrower."""
    if len(chars) > path_bytes_max:
        # No name is that long.
        return (RUN,)
    pieces: list[str | int] = []
    closings = [index for index, char in enumerate(chars) if char == ("]", False)]
    at = 0
    while at < len(chars):
        char, quoted = chars[at]
        at += 1
        closing = _find_closing(chars, closings, at) if char == "[" and not quoted else 0
        if char == "*" and not quoted:
            pieces.append(RUN)
        elif closing and any(one[0] == "[" for one in chars[at : closing - 1]):
            # Threat: a class in a set, `[[:alpha:]]`, contains a bracket that does not close it.
            pieces.append(RUN)
            break
        elif closing or (char == "?" and not quoted):
            pieces.append(ONE)
            at = closing or at
        else:
            pieces.append(char)
    return tuple(pieces)


def _find_closing(chars: list[Char], closings: list[int], at: int) -> int:
    start = at + 1 if at < len(chars) and chars[at][0] in "!^" else at
    found = bisect_left(closings, start + 1)
    return closings[found] + 1 if found < len(closings) else 0


_ESCAPES: Final = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r",
    "t": "\t", "v": "\v", "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip
_ANSI: Final = lazy_pattern(
    r"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|c(.)|(.))",
    re.DOTALL,
)


def decode_ansi(body: str) -> str:
    r"""Decode `$'body'` (bash(1), QUOTING). `\x` and octal escapes give bytes."""
    # bash keeps strings as C does: a NUL ends them.
    text = _ANSI.sub(_ansi_text, body).partition("\0")[0]
    return text.encode(errors="surrogateescape").decode(errors="surrogateescape")


def _ansi_text(match: re.Match[str]) -> str:
    octal, hexadecimal, short, long, control, one = match.groups()
    if octal or hexadecimal:
        number = int(octal, 8) & 0xFF if octal else int(hexadecimal, 16)
        return bytes([number]).decode(errors="surrogateescape")
    if short or long:
        point = int(short or long, 16)
        made = chr(point).encode(errors="surrogatepass") if point <= 0x10FFFF else b"?"
        return made.decode(errors="surrogateescape")
    return chr(ord(control) & 0x1F) if control else _ESCAPES.get(one, f"\\{one}")


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
    sequence = _SEQUENCE.fullmatch(_text_of(inside))
    return _sequence(sequence) if sequence else []


def _sequence(match: re.Match[str]) -> list[list[Char]]:
    first, last, step = match[1], match[2], abs(int(match[3] or 1)) or 1
    letters = first.isalpha()
    if letters != last.isalpha():
        return []
    low, high = (ord(first), ord(last)) if letters else (int(first), int(last))
    numbers = range(low, high + 1, step) if low <= high else range(low, high - 1, -step)
    # One more than the maximum shows the caller that there are too many.
    made = [chr(number) if letters else str(number) for number in numbers[: EXPANSIONS_MAX + 1]]
    return [[(char, False) for char in text] for text in made]


SYSTEM_DIRECTORIES: Final = ("/bin/", "/usr/bin/", "/usr/local/bin/", "/sbin/", "/usr/sbin/")
"""A full path in one of these directories counts as the bare program name."""


def program_name(path: str) -> str:
    return path.rpartition("/")[2] or path


def exact_program(path: str) -> str:
    """Threat: a file in the workspace may have the name of an allowed program."""
    directory, slash, name = path.rpartition("/")
    return name if directory + slash in SYSTEM_DIRECTORIES else path


class Sift(Struct, frozen=True):
    """An operation on the files that find selects below `start`, and its target."""

    act: str
    start: str
    tests: tuple[tuple[str, str], ...]
    target: str = ""


class Touch(Struct):
    """The paths that a command touches, as written in it; `doubts` are reasons to ask."""

    written: list[str] = []
    removed: list[str] = []
    copied: list[tuple[str, str]] = []
    doubts: list[str] = []
    sifted: list[Sift] = []
    reads: list[str] = []
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

    `readings` are all ways in which deny and ask read it, the literal words first. `starts` are
    the indexes of program names in `words`: 0, and those that wrappers start. `obstacles` say why
    no narrow allow may match it. `is_anything`: too much to read, so every deny and ask matches.
    `is_open`: more words are added at run time. `writes` are the targets of redirections. An
    `is_neutral` command needs no rule; an `is_moved` one may run in another directory.
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
    """A parsed line of shell; paths as written in it, unresolved.

    `commands` are its simple commands in source order, including those of scripts given as text
    (`sh -c '…'`); a program that a wrapper starts is a reading, not another command. `writes` and
    `reads` are redirections; `touch`: paths in the arguments of known programs. `runtime_only`
    says what is known only at run time, `problems` what was not understood: either excludes a
    narrow allow, and a line with a problem has one of each. `may_be_any`: the unknown part may be
    any program; `hiding`: why a file may run under the name of a program. `bound` names the limit
    that was exceeded, `moves` the directories of the workspace that the line changes to;
    `has_statement`: it has an assignment or a test, not only commands.
    """

    text: str
    commands: tuple[SimpleCommand, ...] = ()
    writes: tuple[str, ...] = ()
    runtime_only: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    may_be_any: bool = False
    hiding: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    bound: str = ""
    moves: tuple[str, ...] = ()
    touch: Touch = field(default_factory=Touch)
    has_statement: bool = False

    @property
    def wanted(self) -> tuple[SimpleCommand, ...]:
        """The commands that a rule has to name for the line to be allowed."""
        return tuple(each for each in self.commands if not each.is_neutral) or self.commands
