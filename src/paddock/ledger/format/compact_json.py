"""JSON text in one form: compact, non-ASCII raw, members in the order given.

The interpreter's own encoder, built once: building it costs more than encoding
one entry. Pure.
"""

from collections.abc import Callable
from json import JSONDecoder, JSONEncoder
from typing import Final, NoReturn

from paddock.values.calls import Json

try:
    from _json import encode_basestring as _string
    from _json import make_encoder as _make_encoder
except ImportError:  # an interpreter without the C accelerator
    from json.encoder import py_encode_basestring as _string

    _make_encoder = None


def _refuse(value: object) -> NoReturn:
    raise TypeError(f"a {type(value).__name__} is not a JSON value")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


encode_string: Final[Callable[[str], str]] = _string
"""A JSON string with its quotes; only `"`, `\\` and controls below U+0020 are escaped."""

_slow: Final = JSONEncoder(
    ensure_ascii=False,
    check_circular=False,
    allow_nan=False,
    separators=(",", ":"),
    default=_refuse,
)
_chunks: Final = (
    None
    if _make_encoder is None
    else _make_encoder(None, _refuse, _string, None, ":", ",", False, False, False)
)


def encode_json(value: Json) -> str:
    """Return compact JSON text.

    Raises:
        TypeError: a value that JSON does not have.
        ValueError: NaN or an infinity.
    """
    if _chunks is None:
        return _slow.encode(value)
    return "".join(_chunks(value, 0))


_decoder: Final = JSONDecoder(parse_constant=_refuse_constant)


def decode_json(text: str) -> Json:
    """Return the value of JSON text without space around it; of a key given twice, the last.

    Raises:
        ValueError: not JSON, or NaN or an infinity.
        RecursionError: nested deeper than the interpreter can.
    """
    value, end = _decoder.raw_decode(text)
    if end != len(text):
        raise ValueError(f"more text after the JSON value, at character {end}")
    return value


class _DuplicateKeyError(ValueError):
    """Stops the decoder at the first key that an object gives twice."""


def _refuse_duplicates(pairs: list[tuple[str, Json]]) -> Json:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        raise _DuplicateKeyError(next(key for key in keys if keys.count(key) > 1))
    return found


_strict_decoder: Final = JSONDecoder(object_pairs_hook=_refuse_duplicates)


def find_duplicate_key(text: str) -> str | None:
    """Return the first key that an object of valid JSON text gives twice."""
    try:
        _strict_decoder.decode(text)
    except _DuplicateKeyError as found:
        return str(found)
    return None
