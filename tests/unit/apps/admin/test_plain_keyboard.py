"""The plain keyboard: a signal at the worst moment, and bytes that are no text."""

import io
import os
import signal
import threading

import pytest

from paddock.apps.admin.plain import InputEnded, Interrupted, PlainKeyboard, PlainScreen, Typed
from paddock.errors import UsageError

ENDING = (signal.SIGTERM, signal.SIGHUP)
PATIENCE_S = 30.0


class Impatient(io.StringIO):
    """Where somebody presses Ctrl-C as soon as the first prompt is seen; or sends a signal."""

    def __init__(self, number: int = signal.SIGINT) -> None:
        super().__init__()
        self._was_seen = False
        self._number = number

    def flush(self) -> None:
        super().flush()
        if not self._was_seen:
            self._was_seen = True
            os.kill(os.getpid(), self._number)


def test_ctrl_c_while_the_prompt_is_written_is_one_at_the_prompt():
    out = Impatient()
    keyboard = PlainKeyboard(io.StringIO("hello\n"), PlainScreen(out))
    assert [keyboard.read(), keyboard.read()] == [Interrupted(), Typed("hello")]
    assert out.getvalue() == "> \n> hello\n"


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_to_end_while_the_prompt_is_written_ends_the_input(number):
    keyboard = PlainKeyboard(io.StringIO("hello\n"), PlainScreen(Impatient(number)))
    before = signal.getsignal(number)
    with keyboard.ending():
        assert [keyboard.read(), keyboard.read()] == [InputEnded(), InputEnded()]
    assert keyboard.ended_by == number
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_to_end_between_two_messages_ends_the_input(number):
    keyboard = PlainKeyboard(io.StringIO("one\ntwo\n"), PlainScreen(io.StringIO()))
    with keyboard.ending():
        assert keyboard.read() == Typed("one")
        os.kill(os.getpid(), number)
        assert keyboard.read() == InputEnded()


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_to_end_cancels_what_runs_and_what_begins_after_it(number):
    keyboard = PlainKeyboard(io.StringIO("one\n"), PlainScreen(io.StringIO()))
    first, second = threading.Event(), threading.Event()
    with keyboard.ending():
        with keyboard.interrupting(first.set):
            os.kill(os.getpid(), number)
            assert first.wait(PATIENCE_S)
        with keyboard.interrupting(second.set):
            assert second.is_set()
        assert keyboard.read() == InputEnded()


def test_a_hang_up_that_is_ignored_stays_so():
    keyboard = PlainKeyboard(io.StringIO("one\n"), PlainScreen(io.StringIO()))
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with keyboard.ending():
            os.kill(os.getpid(), signal.SIGHUP)
            assert keyboard.read() == Typed("one")
    finally:
        signal.signal(signal.SIGHUP, before)


def keyboard_on(content: bytes, encoding: str = "utf-8", errors: str = "strict") -> PlainKeyboard:
    source = io.TextIOWrapper(io.BytesIO(content), encoding=encoding, errors=errors)
    return PlainKeyboard(source, PlainScreen(io.StringIO()))


LOCALES = pytest.mark.parametrize(
    ("encoding", "errors"),
    [("utf-8", "strict"), ("utf-8", "surrogateescape"), ("ascii", "surrogateescape")],
)


@LOCALES
def test_a_pipe_is_utf_8_whatever_the_locale(encoding, errors):
    keyboard = keyboard_on("caf\u00e9\n\ufffd\n".encode(), encoding, errors)
    said = [keyboard.read(), keyboard.read(), keyboard.read()]
    assert said == [Typed("caf\u00e9"), Typed("\ufffd"), InputEnded()]


@LOCALES
def test_a_line_of_a_pipe_that_is_not_utf_8_is_refused_after_those_before_it(encoding, errors):
    keyboard = keyboard_on(b"one\n\nbad \xff byte\ntwo\n", encoding, errors)
    assert [keyboard.read(), keyboard.read()] == [Typed("one"), Typed("")]
    with pytest.raises(UsageError) as refused:
        keyboard.read()
    said = "'bad \\xff byte' is not UTF-8: this line and the lines after it were not run"
    assert refused.value.render().split("\n") == [
        f"error[usage]: {said}",
        "  where: standard input, line 3",
        "  hint:  convert the input to UTF-8, and start again with line 3: the lines before it were run",
    ]


def test_a_message_of_several_lines_is_not_said_without_the_one_that_is_no_text():
    keyboard = keyboard_on(b"one\ntwo\\\nthree\\\n\xff")
    assert keyboard.read() == Typed("one")
    with pytest.raises(UsageError) as refused:
        keyboard.read()
    assert refused.value.where == "standard input, line 4"
    assert "start again with line 2: " in refused.value.hint
