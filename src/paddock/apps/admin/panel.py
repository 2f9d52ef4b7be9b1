"""What stands below everything that was shown: the growing line, the input, badge and status.

Everything here runs in the application's loop. In each mode a key means one thing:

    READING   the line is edited; Enter says it
    BUSY      the next line is edited; Enter waits, Ctrl-C cancels what runs
    DRAWING   a question is about to stand there: every key is dropped
    ASKING    the answer is typed; Enter gives it
"""

import termios
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    Dimension,
    Float,
    FloatContainer,
    FormattedTextControl,
    HSplit,
    Layout,
    Window,
)
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.layout.processors import BeforeInput
from prompt_toolkit.output import ColorDepth, Output
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import SearchToolbar

from paddock.apps.admin.plain import (
    Choice,
    InputEnded,
    Interrupted,
    Mode,
    PersonsAnswer,
    Question,
    Said,
    Silence,
    Typed,
    Vocabulary,
    candidates,
    parse_choice,
)
from paddock.apps.admin.show import StatusLine, shown_text, status_text

_MENU_ROWS: Final = 8
_LIVE_ROWS_MAX: Final = 8
_STYLE: Final = Style.from_dict(
    {
        "prompt": "bold",
        "question": "bold",
        "live": "",
        "badge": "bold reverse ansired",
        "status": "reverse",
    }
)


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


class Wrap(Protocol):
    def __call__(self, text: str, width: int, rows_max: int, /) -> str: ...


class PanelListener(Protocol):
    def said(self, said: Said) -> None: ...

    def decided(self, answer: PersonsAnswer | Silence) -> None: ...

    def interrupted(self) -> None: ...


class Panel:
    def __init__(self, past: list[str], listener: PanelListener, wrap: Wrap) -> None:
        """`past` is what was typed before, oldest first; `wrap` makes rows of `live`."""
        self.listener = listener
        self._wrap = wrap
        self.mode = Mode.BUSY
        self.live = ""
        self.status: StatusLine | None = None
        self.vocabulary = Vocabulary()
        self.question: Question | None = None
        self.line = Buffer(
            multiline=True,
            history=InMemoryHistory(past),
            completer=VocabularyCompleter(self._known),
            enable_history_search=False,
        )
        self.reply = Buffer(multiline=False)
        search = SearchToolbar(backward_search_prompt="search back: ")
        self._search = search
        self._line_window = Window(
            BufferControl(
                self.line,
                search_buffer_control=search.control,
                input_processors=[BeforeInput(self._line_prompt)],
                preview_search=True,
            ),
            wrap_lines=True,
            dont_extend_height=True,
            height=self._line_height,
            get_line_prefix=_continue_line,
        )
        self._reply_window = Window(
            BufferControl(self.reply, input_processors=[BeforeInput(self._question_prompt)]),
            wrap_lines=True,
            dont_extend_height=True,
        )
        self._live_window = Window(
            FormattedTextControl(self._live_text), wrap_lines=True, dont_extend_height=True
        )

    def application(
        self, keys: KeyBindings, source: Vt100Input, output: Output, *, colours: bool
    ) -> Application[None]:
        app: Application[None] = Application(
            layout=self._layout(),
            key_bindings=keys,
            style=_STYLE,
            color_depth=None if colours else ColorDepth.DEPTH_1_BIT,
            input=source,
            output=output,
            erase_when_done=True,
            after_render=self._has_rendered,
        )
        self._app = app
        self._source = source
        return app

    # Modes

    def begin_reading(self) -> None:
        self.mode = Mode.READING
        self._app.layout.focus(self._line_window)
        self._redraw()

    def begin_work(self) -> None:
        self.mode = Mode.BUSY
        self._app.layout.focus(self._line_window)
        self._redraw()

    def begin_asking(self, question: Question) -> None:
        self.question = question
        self.reply.reset()
        self.mode = Mode.DRAWING
        self._app.layout.focus(self._reply_window)
        self._redraw()

    def give(self, answer: PersonsAnswer | Silence) -> None:
        self.question = None
        self.reply.reset()
        self.begin_work()
        self.listener.decided(answer)

    def _has_rendered(self, app: Application[None]) -> None:
        if self.mode is not Mode.DRAWING:
            return
        # Threat: keys that were typed before the question stood there would answer it:
        # what the system holds, and what was read of a key's sequence, is thrown away.
        termios.tcflush(self._source.fileno(), termios.TCIFLUSH)
        self._source.flush_keys()
        app.key_processor.empty_queue()
        self.mode = Mode.ASKING
        app.invalidate()

    def _redraw(self) -> None:
        # The panel may have become lower: nothing of its old rows may stay.
        self._app.renderer.erase()
        self._app.invalidate()

    # What is drawn

    def _layout(self) -> Layout:
        is_asking = Condition(self._is_asking)
        body = HSplit(
            [
                ConditionalContainer(self._live_window, Condition(self._has_live)),
                ConditionalContainer(self._line_window, ~is_asking),
                ConditionalContainer(self._reply_window, is_asking),
                self._search,
                ConditionalContainer(
                    Window(
                        FormattedTextControl(self._badge_text),
                        wrap_lines=True,
                        dont_extend_height=True,
                        style="class:badge",
                    ),
                    Condition(self._has_badge),
                ),
                Window(FormattedTextControl(self._status_text), height=1, style="class:status"),
            ]
        )
        menu = CompletionsMenu(max_height=_MENU_ROWS, scroll_offset=1)
        root = FloatContainer(body, [Float(menu, xcursor=True, ycursor=True)])
        return Layout(root, focused_element=self._line_window)

    def _known(self) -> Vocabulary:
        return self.vocabulary

    def _is_asking(self) -> bool:
        return self.mode in {Mode.DRAWING, Mode.ASKING}

    def _has_live(self) -> bool:
        return bool(self.live) and not self._is_asking()

    def _has_badge(self) -> bool:
        return self.status is not None and bool(self.status.badges)

    def _line_height(self) -> Dimension:
        # The menu is drawn over the panel's own rows, so there have to be some.
        return Dimension(min=_MENU_ROWS + 1) if self.line.complete_state else Dimension(min=1)

    def _line_prompt(self) -> StyleAndTextTuples:
        return [("class:prompt", "> " if self.mode is Mode.READING else "… ")]

    def _live_text(self) -> StyleAndTextTuples:
        # With each drawing: the terminal may have another width than at the one before.
        size = self._app.output.get_size()
        rows = max(1, min(_LIVE_ROWS_MAX, size.rows - 4))
        return [("class:live", self._wrap(self.live, size.columns, rows))]

    def _badge_text(self) -> StyleAndTextTuples:
        badges = () if self.status is None else self.status.badges
        return [("class:badge", f" {'  ·  '.join(badges)} ")]

    def _status_text(self) -> StyleAndTextTuples:
        if self.status is None:
            return []
        columns = self._app.output.get_size().columns
        return [("class:status", f" {shown_text(status_text(self.status, columns - 2))} ")]

    def _question_prompt(self) -> StyleAndTextTuples:
        # The question stands above already; that it can be answered is said when it can.
        prompt = "…"
        if self.question is not None and self.mode is Mode.ASKING:
            prompt = self.question.prompt
        return [("class:question", shown_text(prompt))]


def _continue_line(number: int, wrapped: int) -> StyleAndTextTuples:
    return [] if number == 0 and wrapped == 0 else [("class:prompt", "  ")]


def panel_keys(panel: Panel) -> KeyBindings:
    """The bindings. The strictest come as `eager`: nothing else sees the key then."""
    keys = KeyBindings()
    _Reading(panel).bind(keys)
    _Asking(panel).bind(keys)
    _Working(panel).bind(keys)
    return keys


class _Reading:
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
        self._panel.listener.said(InputEnded())


class _Asking:
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
            self._panel.give(PersonsAnswer(question.id, choice))

    def _refuse(self, event: KeyPressEvent) -> None:
        question = self._panel.question
        if question is not None:
            self._panel.give(PersonsAnswer(question.id, Choice.NO))

    def _interrupt(self, event: KeyPressEvent) -> None:
        self._panel.listener.interrupted()
        self._refuse(event)


class _Working:
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
