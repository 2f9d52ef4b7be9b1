"""The plain keyboard, where a signal arrives at the worst moment."""

import io
import os
import signal

from paddock.apps.admin.plain import PlainKeyboard, PlainScreen
from paddock.apps.admin.ports import Interrupted, Typed


class Impatient(io.StringIO):
    """Where somebody presses Ctrl-C as soon as the first prompt is seen."""

    def __init__(self) -> None:
        super().__init__()
        self._was_seen = False

    def flush(self) -> None:
        super().flush()
        if not self._was_seen:
            self._was_seen = True
            os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_while_the_prompt_is_written_is_one_at_the_prompt():
    out = Impatient()
    keyboard = PlainKeyboard(io.StringIO("hello\n"), PlainScreen(out))
    assert [keyboard.read(), keyboard.read()] == [Interrupted(), Typed("hello")]
    assert out.getvalue() == "> \n> hello\n"
