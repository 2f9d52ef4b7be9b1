"""Escape, number and cut text for a model or a person; every cut is stated."""

import re
from collections.abc import Iterable, Sequence

from paddock import limits
from paddock.pattern import lazy_pattern

BOM = b"\xef\xbb\xbf"

# Threat: a file name or a line with a line break, a terminal sequence or a
# bidirectional override could pass for a row or notice of Paddock's.
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
"""Characters that Python calls printable but that are not visible: Default_Ignorable_Code_Point,
the empty Braille pattern, and variation selectors, which many emoji contain."""
# The hook and the ledger's names write the same format without this module.
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
    """Return True if the character is visible, or a plain space."""
    return character.isprintable() and _UNSEEN.match(character) is None


def show_unseen(text: str) -> tuple[str, int]:
    """Return one line for an approver, and the number of escaped characters.

    Threat: bidirectional, blank and format characters hide what the approver agrees to.
    """
    if text.isascii() and text.isprintable():
        return text, 0
    shown = [each if is_seen(each) else _escape(each) for each in text]
    return "".join(shown), sum(not is_seen(each) for each in text)


def show_line(line: str) -> tuple[str, int]:
    return (line, 0) if line.isprintable() else _DANGEROUS.subn(_escape_match, line)


def quote(value: object) -> str:
    """Quote an offending value for a message: on one line, cut at the limit."""
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
    """Return True if it ends like a text cut by `cut`, or like a shortened name in the ledger."""
    return _CUT.search(text) is not None


def text_of(value: object) -> str:
    """Return `repr` of any JSON value, or a placeholder if Python cannot print it.

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
    """Return `     N<TAB>text` for a line, and the number of escaped characters.

    A line end is removed. A byte-order mark at the start of line 1 is hidden.
    """
    line = line.removeprefix("\ufeff") if number == 1 else line
    if line.isprintable():
        return f"{number:6d}\t{line}", 0
    shown, escaped = show_line(line.removesuffix("\n").removesuffix("\r"))
    return f"{number:6d}\t{shown}", escaped


def number_lines(lines: list[bytes], first: int, line_chars_max: int) -> str:
    """Return rows for raw lines from number `first` on; a longer line is cut and says so."""
    rows: list[str] = []
    for number, raw in enumerate(lines, first):
        line = raw.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "surrogateescape")
        # Cut before escaping: a line may be as long as the largest file.
        row, _ = number_line(number, line[:line_chars_max])
        missing = len(line) - line_chars_max
        rows.append(f"{row} [... {missing} more characters]" if missing > 0 else row)
    return "\n".join(rows)


def escape_notices(escaped: int) -> list[str]:
    if not escaped:
        return []
    shown = f"{escaped} control or direction characters are shown as \\xNN or \\uNNNN"
    return [f"{shown}; in an edit, give the characters themselves"]


def name_notices(names: Iterable[str]) -> list[str]:
    listed = list(names)
    together = "".join(listed)
    if show_name(together) is together:
        return []
    escaped = sum(show_name(each) != each for each in listed)
    if not escaped:
        return []
    which = "1 name has" if escaped == 1 else f"{escaped} names have"
    shown = "control or direction characters, shown as \\xNN or \\uNNNN"
    return [f"{which} {shown}; in a path, give the characters themselves"]
