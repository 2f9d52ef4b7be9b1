"""What each key does, by the panel's mode."""

from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from paddock.apps.admin.modes import Mode
from paddock.apps.admin.panel import Panel
from paddock.apps.admin.ports import Answer, Choice, Ended, Interrupted, Typed, parse_choice


def panel_keys(panel: Panel) -> KeyBindings:
    """The bindings. The strictest come as `eager`: nothing else sees the key then."""
    keys = KeyBindings()
    _Reading(panel).bind(keys)
    _Asking(panel).bind(keys)
    _Working(panel).bind(keys)
    return keys


class _Reading:
    """While a message is typed."""

    def __init__(self, panel: Panel) -> None:
        self._panel = panel

    def bind(self, keys: KeyBindings) -> None:
        here = Condition(self._is_here) & ~is_searching
        is_empty = Condition(self._is_empty)
        keys.add("enter", filter=here)(self._enter)
        keys.add("escape", "enter", filter=here)(self._new_line)
        keys.add("c-j", filter=here)(self._new_line)
        keys.add("tab", filter=here)(self._complete)
        for key in ("c-c", Keys.SIGINT):
            keys.add(key, filter=here, eager=True)(self._interrupt)
        keys.add("c-d", filter=here & is_empty)(self._end)

    def _is_here(self) -> bool:
        return self._panel.mode is Mode.READING

    def _is_empty(self) -> bool:
        return not self._panel.line.text

    def _enter(self, event: KeyPressEvent) -> None:
        line = self._panel.line
        if line.complete_state is not None and line.complete_state.current_completion is not None:
            line.complete_state = None
            return
        if line.document.is_cursor_at_the_end and line.text.endswith("\\"):
            line.delete_before_cursor()
            line.newline(copy_margin=False)
            return
        text = line.text
        if text.strip() and not text.startswith(" "):
            line.append_to_history()
        line.reset()
        self._panel.begin_work()
        self._panel.listener.said(Typed(text))

    def _new_line(self, event: KeyPressEvent) -> None:
        self._panel.line.newline(copy_margin=False)

    def _complete(self, event: KeyPressEvent) -> None:
        line = self._panel.line
        if line.complete_state:
            line.complete_next()
        else:
            line.start_completion(insert_common_part=True)

    def _interrupt(self, event: KeyPressEvent) -> None:
        if self._panel.line.text:
            self._panel.line.reset()
            return
        self._panel.begin_work()
        self._panel.listener.said(Interrupted())

    def _end(self, event: KeyPressEvent) -> None:
        self._panel.begin_work()
        self._panel.listener.said(Ended())


class _Asking:
    """While an answer is typed."""

    def __init__(self, panel: Panel) -> None:
        self._panel = panel

    def bind(self, keys: KeyBindings) -> None:
        here = Condition(self._is_here)
        keys.add("enter", filter=here, eager=True)(self._enter)
        # Threat: what is pasted was not typed as an answer to this question.
        keys.add(Keys.BracketedPaste, filter=here, eager=True)(_drop)
        keys.add("c-d", filter=here, eager=True)(self._refuse)
        for key in ("c-c", Keys.SIGINT):
            keys.add(key, filter=here, eager=True)(self._interrupt)

    def _is_here(self) -> bool:
        return self._panel.mode is Mode.ASKING

    def _enter(self, event: KeyPressEvent) -> None:
        question = self._panel.question
        if question is not None:
            choice = parse_choice(self._panel.reply.text, question.choices)
            self._panel.give(Answer(question.id, choice))

    def _refuse(self, event: KeyPressEvent) -> None:
        question = self._panel.question
        if question is not None:
            self._panel.give(Answer(question.id, Choice.NO))

    def _interrupt(self, event: KeyPressEvent) -> None:
        self._panel.listener.interrupted()
        self._refuse(event)


class _Working:
    """While something runs, and while a question is being drawn."""

    def __init__(self, panel: Panel) -> None:
        self._panel = panel

    def bind(self, keys: KeyBindings) -> None:
        busy, drawing = Condition(self._is_busy), Condition(self._is_drawing)
        for key in ("enter", Keys.ControlJ):
            keys.add(key, filter=busy & ~is_searching, eager=True)(_drop)
        keys.add("c-d", filter=busy & Condition(self._is_empty), eager=True)(_drop)
        keys.add(Keys.Any, filter=drawing, eager=True)(_drop)
        for key in ("c-c", Keys.SIGINT):
            keys.add(key, filter=busy | drawing, eager=True)(self._interrupt)

    def _is_busy(self) -> bool:
        return self._panel.mode is Mode.BUSY

    def _is_drawing(self) -> bool:
        return self._panel.mode is Mode.DRAWING

    def _is_empty(self) -> bool:
        return not self._panel.line.text

    def _interrupt(self, event: KeyPressEvent) -> None:
        self._panel.listener.interrupted()


def _drop(event: KeyPressEvent) -> None:
    """The key means nothing now."""
