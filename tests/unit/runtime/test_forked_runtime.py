"""A runtime in a child that was forked while another thread of its parent ran a call."""

import os
import signal
import threading

import pytest

from paddock.runtime.runtime import Runtime
from paddock.tools.arguments import ArgumentType
from paddock.tools.spec import Effects, ToolSpec
from tests.support.children import end_of

PATIENCE_S = 60
"""After which a test that would hang fails."""
OPEN = '[profiles.standard]\nallow = ["tool:*"]\n'


class Nothing(ArgumentType):
    """No argument."""


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_child_calls_and_closes_and_the_parents_call_goes_on(door):
    reached, let_go, closed = threading.Event(), threading.Event(), []

    def wait(arguments: Nothing) -> str:
        reached.set()
        assert let_go.wait(PATIENCE_S)
        return "waited"

    dispatcher = door.dispatcher(policy=OPEN)
    runtime = Runtime(
        dispatcher, dispatcher._context.tools, lambda: "C", lambda: closed.append(os.getpid())
    )
    runtime.tools.register(
        ToolSpec("wait", "Wait", "d", "client", Nothing, Effects(reads_only=False)), wait
    )
    said = []
    calling = threading.Thread(target=lambda: said.append(runtime.call("wait", {}).content))
    calling.start()
    assert reached.wait(PATIENCE_S)

    def child() -> None:
        signal.alarm(PATIENCE_S)
        assert runtime.call("create_file", {"path": "child", "content": "x"}).status == "ok"
        runtime.close()
        assert closed == [os.getpid()]

    code = end_of(child)
    runtime.close()
    assert (code, closed, said) == (0, [], [])
    let_go.set()
    calling.join()
    assert (closed, said) == ([os.getpid()], ["waited"])
    assert (door.root / "child").read_text() == "x"


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_child_that_is_forked_in_a_call_closes_when_that_call_ends(door):
    closed = []

    def fork(arguments: Nothing) -> str:
        if os.fork() != 0:
            return "parent"
        runtime.close()
        closed.append("not yet")
        return "child"

    dispatcher = door.dispatcher(policy=OPEN)
    runtime = Runtime(
        dispatcher, dispatcher._context.tools, lambda: "C", lambda: closed.append("closed")
    )
    runtime.tools.register(
        ToolSpec("fork", "Fork", "d", "client", Nothing, Effects(reads_only=False)), fork
    )
    if runtime.call("fork", {}).content == "child":
        os._exit(0 if closed == ["not yet", "closed"] else 1)
    assert os.wait()[1] == 0
    runtime.close()
    assert closed == ["closed"]
