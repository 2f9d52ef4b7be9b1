"""How an offending value, often a path, stands in a message."""

from paddock.text.show import quote as quote_text


def quote(value: object) -> str:
    """`value` as text: on one line, quoted, cut at `limits.message_value_chars_max`."""
    return quote_text(str(value))
