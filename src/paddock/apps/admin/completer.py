"""The vocabulary's candidates, as prompt_toolkit wants them."""

from collections.abc import Callable, Iterable

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from paddock.apps.admin.completion import Vocabulary, candidates


class VocabularyCompleter(Completer):
    """Asks for the vocabulary each time: another session may have another."""

    def __init__(self, known: Callable[[], Vocabulary]) -> None:
        self._known = known

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        before = document.text_before_cursor
        for found in candidates(before, self._known()):
            yield Completion(found.text, -found.replaces, display_meta=found.about)
