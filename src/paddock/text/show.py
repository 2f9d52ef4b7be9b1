"""Text as a model or a person sees it: escaped, numbered, cut with a word about it."""

import re
from collections.abc import Iterable, Sequence

from paddock import limits
from paddock.pattern import lazy_pattern

BOM = b"\xef\xbb\xbf"

# Threat: a file name or a line that holds a line break, a terminal sequence or a
# bidirectional override could pass for a row or a notice of ours.
_DANGEROUS = lazy_pattern(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069"
    "\ud800-\udfff\ufeff]"
)
_IN_NAMES = (
    "[\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u2800\u3164\ud800-\udfff\ufeff\uffa0\U000e0000-\U000e0fff]"
)
_NAME_DANGEROUS = lazy_pattern(_IN_NAMES)
_UNSEEN = lazy_pattern(f"{_IN_NAMES}|[\ufe00-\ufe0f]")
"""With the selectors of variants, which are part of many an emoji, what Python calls printable and
is drawn as nothing: Default_Ignorable_Code_Point, and the empty Braille pattern."""
# The hook and the ledger's names write the same without this module.
_CUT = lazy_pattern(r"… \(\d+ more characters(, sha256 [0-9a-f]{16})?\)\Z")
_NAMED_MAX = 5
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _escape_match(found: re.Match[str]) -> str:
    return _escape(found.group())


def _escape(character: str) -> str:
    code = ord(character)
    if character in _SHORT:
        return _SHORT[character]
    if 0xDC80 <= code <= 0xDCFF:
        # A byte that is not UTF-8, as the file system gave it (PEP 383).
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def show_name(name: str) -> str:
    if name.isascii() and name.isprintable():
        return name
    return _NAME_DANGEROUS.sub(_escape_match, name)


def is_seen(character: str) -> bool:
    """Whether a person sees it: neither blank, but for a space, nor control nor format."""
    return character.isprintable() and _UNSEEN.match(character) is None


def show_unseen(text: str) -> tuple[str, int]:
    """One line for somebody who decides by it, and how many characters were escaped.

    Threat: what is agreed to and not seen: bidirectional, blank and format characters.
    """
    if text.isascii() and text.isprintable():
        return text, 0
    shown = [each if is_seen(each) else _escape(each) for each in text]
    return "".join(shown), sum(not is_seen(each) for each in text)


def show_line(line: str) -> tuple[str, int]:
    if line.isprintable():
        return line, 0
    return _DANGEROUS.subn(_escape_match, line)


def quote(value: object) -> str:
    """An offending value for a message: on one line, quoted, cut at the limit."""
    text = value if isinstance(value, str) else text_of(value)
    shown = show_name(text[: limits.message_value_chars_max])
    missing = len(text) - limits.message_value_chars_max
    return f"'{shown}'" if missing <= 0 else f"'{shown}' (and {missing} more characters)"


def name_some(names: Sequence[str]) -> str:
    shown = ", ".join(quote(name) for name in names[:_NAMED_MAX])
    more = len(names) - _NAMED_MAX
    return f"{shown} and {more} more" if more > 0 else shown


def cut(text: str, chars_max: int) -> str:
    missing = len(text) - chars_max
    return text if missing <= 0 else f"{text[:chars_max]}… ({missing} more characters)"


def is_cut(text: str) -> bool:
    """Whether it ends as what `cut` left, or as a name of which the ledger keeps a part."""
    return _CUT.search(text) is not None


def text_of(value: object) -> str:
    """`repr` of any JSON value, also where Python has none.

    A value may nest deeper than the stack, and an integer may have more digits than
    Python prints (`sys.set_int_max_str_digits`).
    """
    try:
        return repr(value)
    except RecursionError:
        return f"<{type(value).__name__} nested too deep>"
    except ValueError:
        return f"<{type(value).__name__} with an integer too long to print>"


def number_line(number: int, line: str) -> tuple[str, int]:
    """`     N<TAB>text` of one line, and how many characters of it were escaped.

    Its line end may still be on. A byte-order mark at the start of line 1 is hidden.
    """
    if number == 1:
        line = line.removeprefix("\ufeff")
    shown, escaped = show_line(line.removesuffix("\n").removesuffix("\r"))
    return f"{number:6d}\t{shown}", escaped


def number_lines(lines: list[bytes], first: int, line_chars_max: int) -> str:
    """Rows for raw lines from number `first` on; a longer line is cut and says so."""
    rows: list[str] = []
    for number, raw in enumerate(lines, first):
        line = raw.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "surrogateescape")
        # Cut before it is escaped: a line may be as long as the largest file.
        row, _ = number_line(number, line[:line_chars_max])
        missing = len(line) - line_chars_max
        rows.append(f"{row} [... {missing} more characters]" if missing > 0 else row)
    return "\n".join(rows)


def escape_notices(escaped: int) -> list[str]:
    if not escaped:
        return []
    shown = f"{escaped} control or direction characters are shown as \\xNN or \\uNNNN"
    return [f"{shown}; an edit needs the characters themselves"]


def name_notices(names: Iterable[str]) -> list[str]:
    listed = list(names)
    together = "".join(listed)
    if show_name(together) is together:
        return []
    escaped = sum(show_name(each) != each for each in listed)
    if not escaped:
        return []
    which = "1 name holds" if escaped == 1 else f"{escaped} names hold"
    shown = "control or direction characters, shown as \\xNN or \\uNNNN"
    return [f"{which} {shown}; a path needs the characters themselves"]
