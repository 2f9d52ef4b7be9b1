"""Exact replacement in a file's content: what every editing tool does.

A tool brings its own words, so that a message names the argument that the model
sent. Where the places are and what is spliced is `text`'s business.
"""

from dataclasses import dataclass
from itertools import islice

from paddock import limits
from paddock.errors import AmbiguousMatchError, StringNotFoundError
from paddock.text.check import require_text
from paddock.text.locate import Span, find_spans, lines_of
from paddock.text.nearest import find_nearest
from paddock.text.show import quote, show_line
from paddock.text.splice import Spliced, splice, splice_all

_COPY_EXACTLY = "view the file and copy the text exactly"


@dataclass(frozen=True, slots=True)
class Wording:
    """A tool's messages. `{name}` is the file, `{count}` how often, `{lines}` where."""

    not_found: str
    ambiguous: str
    ambiguous_hint: str


class Replacement:
    """One exact replacement in the content that the workspace hands over under its lock.

    Afterwards `spliced` says where the new text stands.
    """

    __slots__ = ("_may_view", "_name", "_new", "_old", "_wording", "spliced")

    def __init__(
        self, name: str, old: bytes, new: bytes, wording: Wording, *, may_view: bool
    ) -> None:
        self._may_view = may_view
        self._name = name
        self._new = new
        self._old = old
        self._wording = wording
        self.spliced: Spliced | None = None

    def apply(self, content: bytes) -> bytes:
        """The content with the one place changed.

        Raises: TextError if it is no text, or the place is missing or not the only one.
        """
        require_text(content, self._name)
        with_hint = self._may_view
        place = find_only(content, self._old, self._name, self._wording, with_hint=with_hint)
        self.spliced = splice(content, place, self._old, self._new)
        return self.spliced.content


class ReplacementOfAll:
    """Every place, from the front and none inside another; afterwards `count` says how many."""

    __slots__ = ("_may_view", "_name", "_new", "_old", "_wording", "count")

    def __init__(
        self, name: str, old: bytes, new: bytes, wording: Wording, *, may_view: bool
    ) -> None:
        self._may_view = may_view
        self._name = name
        self._new = new
        self._old = old
        self._wording = wording
        self.count = 0

    def apply(self, content: bytes) -> bytes:
        """The content with all places changed.

        Raises: TextError if it is no text, there is no place, or it would grow too large.
        """
        require_text(content, self._name)
        changed, self.count = splice_all(
            content, self._old, self._new, limits.edited_file_bytes_max
        )
        if not self.count:
            raise _not_found(
                content, self._old, self._name, self._wording, with_hint=self._may_view
            )
        return changed


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
    nearest = find_nearest(content, sought)
    if not nearest:
        return _COPY_EXACTLY
    rows = [
        f"line {number}: {show_line(line[: limits.snippet_line_chars_max])[0]}"
        + (" [... cut]" if len(line) > limits.snippet_line_chars_max else "")
        for number, line in nearest
    ]
    return "copy the text exactly; the nearest lines are:\n" + "\n".join(rows)
