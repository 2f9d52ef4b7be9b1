"""Exact replacement in a file's content: what every editing tool does.

A tool brings its own words, so that a message names the argument that the model
sent. Where the places are and what is spliced is `text`'s business.
"""

from dataclasses import dataclass, field
from itertools import islice

from paddock import limits
from paddock.errors import (
    AmbiguousMatchError,
    StringNotFoundError,
    TextEncodingError,
    TextUnchangedError,
)
from paddock.text.edit import (
    NearLine,
    Span,
    Spliced,
    find_apart,
    find_nearest,
    find_spans,
    lines_of,
    require_apart,
    require_content,
    require_text,
    splice,
    splice_all,
)
from paddock.text.show import quote, show_line
from paddock.workspace import Pieces

_WITHOUT_CR = (
    "it stands there with other line ends: write newlines without CR, which match any line end"
)
_COPY_EXACTLY = "view the file and copy the text exactly"


@dataclass(frozen=True, slots=True)
class Wording:
    """A tool's messages. `{name}` is the file, `{count}` how often, `{lines}` where."""

    not_found: str
    ambiguous: str
    ambiguous_hint: str


@dataclass(slots=True)
class _Edit:
    """What a tool wants replaced, as the workspace asks for it under its lock."""

    name: str
    old: bytes
    new: bytes
    wording: Wording
    may_view: bool = field(kw_only=True)

    def require_editable(self, content: bytes) -> None:
        """Raises: TextError unless it is UTF-8, or the edit leaves what is not as it is."""
        try:
            require_text(content, self.name)
        except TextEncodingError:
            if not (self.old.isascii() and self.new.isascii()):
                raise
            spans = find_apart(content, self.old)
            require_apart(content, (span.start for span in spans), self.name)


@dataclass(slots=True)
class Replacement(_Edit):
    """The only place. Afterwards `spliced` says where the new text stands."""

    spliced: Spliced | None = field(default=None, init=False)

    def apply(self, content: bytes) -> Pieces:
        """The content with the one place changed.

        Raises: TextError if it is no text, the place is missing or not the only one, or
            nothing would change.
        """
        self.require_editable(content)
        place = find_only(content, self.old, self.name, self.wording, with_hint=self.may_view)
        self.spliced = splice(content, place, self.old, self.new)
        if self.spliced.changes_nothing:
            raise _unchanged(self.name)
        return self.spliced.pieces


@dataclass(slots=True)
class ReplacementOfAll(_Edit):
    """Every place, from the front and none inside another; afterwards `count` says how many."""

    count: int = field(default=0, init=False)

    def apply(self, content: bytes) -> Pieces:
        """The content with all places changed.

        Raises: TextError if it is no text, there is no place, it would grow too large, or
            nothing would change.
        """
        self.require_editable(content)
        changed, self.count = splice_all(content, self.old, self.new, limits.edited_file_bytes_max)
        if not self.count:
            raise _not_found(content, self.old, self.name, self.wording, with_hint=self.may_view)
        if changed == content:
            raise _unchanged(self.name)
        return (changed,)


def _unchanged(name: str) -> TextUnchangedError:
    # Two texts that differ in their line ends alone may come to the same in a file of CRLF.
    return TextUnchangedError(
        f"the edit leaves {quote(name)} as it is: it differs in line ends alone, and the "
        "file has those that it asks for",
        where=name,
        hint="there is nothing to change",
    )


def require_change(old: str, new: str, names: tuple[str, str]) -> tuple[bytes, bytes]:
    """The two texts of an edit; `names` are the tool's arguments that hold them.

    Raises:
        TextUnchangedError: they are the same.
        TextError: one of them is not fit for a file.
    """
    if old == new:
        raise TextUnchangedError(
            f"{names[0]} and {names[1]} are the same", hint="there is nothing to change"
        )
    return require_content(old, names[0]), require_content(new, names[1])


def find_only(
    content: bytes, sought: bytes, name: str, wording: Wording, *, with_hint: bool
) -> Span:
    """The one place of `sought`; `with_hint`, an error shows the nearest lines.

    Raises:
        StringNotFoundError: it does not stand there.
        AmbiguousMatchError: with the count, overlaps included, and line numbers.
    """
    spans = list(islice(find_spans(content, sought), limits.matches_counted_max + 1))
    if len(spans) == 1:
        return spans[0]
    if not spans:
        raise _not_found(content, sought, name, wording, with_hint=with_hint)
    listed = ", ".join(str(line) for line in lines_of(content, spans[: limits.matches_listed_max]))
    found, more = str(len(spans)), str(len(spans) - limits.matches_listed_max)
    if len(spans) > limits.matches_counted_max:
        found, more = f"over {limits.matches_counted_max}", "many"
    tail = f" and {more} more places" if len(spans) > limits.matches_listed_max else ""
    shown = {"name": quote(name), "count": found, "lines": f"{listed}{tail}"}
    raise AmbiguousMatchError(
        wording.ambiguous.format(**shown),
        where=name,
        hint=wording.ambiguous_hint.format(**shown),
    )


def _not_found(
    content: bytes, sought: bytes, name: str, wording: Wording, *, with_hint: bool
) -> StringNotFoundError:
    # Threat: an agent that may edit a file and not view it would read it in the hint.
    hint = _nearest_hint(content, sought) if with_hint else _COPY_EXACTLY
    message = wording.not_found.format(name=quote(name))
    return StringNotFoundError(message, where=name, hint=hint)


def _nearest_hint(content: bytes, sought: bytes) -> str:
    bare = sought.replace(b"\r\n", b"\n")
    if bare != sought and next(find_spans(content, bare), None) is not None:
        return _WITHOUT_CR
    nearest = find_nearest(content, sought)
    if not nearest:
        return _COPY_EXACTLY
    rows = [_near_row(line) for line in nearest]
    return "copy the text exactly; the nearest lines are:\n" + "\n".join(rows)


def _near_row(line: NearLine) -> str:
    text, _ = show_line(line.text[: limits.snippet_line_chars_max])
    cut = " [... cut]" if len(line.text) > limits.snippet_line_chars_max else ""
    end = " [... the file ends here]" if line.is_end else ""
    return f"line {line.number}: {text}{cut}{end}"
