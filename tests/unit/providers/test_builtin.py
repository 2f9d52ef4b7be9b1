"""The built-in model: what it recognises, what it calls, and what it says about itself."""

import pytest

from paddock.providers.builtin import BuiltinModel
from paddock.providers.failures import CancelToken
from paddock.values.models import (
    AssistantMessage,
    ModelRequest,
    OutputSchema,
    Stop,
    ToolAnswer,
    ToolAnswers,
    ToolSchema,
    ToolUse,
    Usage,
    UserMessage,
)
from tests.support.models import Listener

CORE = ("gate_check", "read_file", "query_ledger", "list_files", "list_packages")
DEVELOPMENT = ("write_file_dev", "edit_file_dev", "grep_dev", "run_shell_dev")
WORKSPACE = ("create_file", "str_replace", "view", "move_file", "delete_file")
AGENT = (*WORKSPACE, "grep", "find", "ls", "write_output", "run_shell")


def schemas(*names: str) -> tuple[ToolSchema, ...]:
    properties = {
        "path": {"type": "string"},
        "max_depth": {"type": "integer"},
        "create_dirs": {"type": "boolean"},
    }
    return tuple(
        ToolSchema(name, "what it does", {"type": "object", "properties": properties})
        for name in names
    )


def ask(text: str, *names: str, messages=(), **more):
    request = ModelRequest((UserMessage(text), *messages), tools=schemas(*names), **more)
    return BuiltinModel().route(request)


def called(text: str, *names: str, messages=()):
    turn = ask(text, *names, messages=messages)
    return [(call.name, call.arguments) for call in turn.tool_calls]


def did(name: str, content: str, *, is_error: bool = False):
    call = ToolUse(f"id_{name}", name, {})
    return (
        AssistantMessage("", (call,)),
        ToolAnswers((ToolAnswer(call.id, name, content, is_error),)),
    )


ADMIN_SESSION = [
    ("what frameworks are installed?", "list_packages", {}),
    (
        "show me turn events from the session ledger",
        "query_ledger",
        {"ledger": "ho2m", "event_type": "TURN_RECORDED"},
    ),
    ("what files are in the kernel directory?", "list_files", {"path": "HOT/kernel"}),
    ("run the gate check", "gate_check", {"gate": "all"}),
    (
        'write a file at HO2/scratch/test.txt with the content "hello from admin"',
        "write_file_dev",
        {"path": "HO2/scratch/test.txt", "content": "hello from admin", "create_dirs": True},
    ),
    (
        'search for "def handle_turn" in the HO2 directory',
        "grep_dev",
        {"pattern": "def handle_turn", "path": "HO2"},
    ),
]


@pytest.mark.parametrize(("text", "tool", "arguments"), ADMIN_SESSION)
def test_the_admin_session_comes_out_line_by_line(text, tool, arguments):
    assert called(text, *CORE, *DEVELOPMENT) == [(tool, arguments)]


def test_hello_is_answered_without_a_tool():
    turn = ask("hello", *CORE)

    assert (turn.tool_calls, turn.stop, turn.usage) == ((), Stop.END_TURN, Usage())
    assert "built-in model" in turn.text
    assert "not a language model" in turn.text


PLAIN = [
    ("check gate G0B", "gate_check", {"gate": "G0B"}),
    ("is G3 passing?", "gate_check", {"gate": "G3"}),
    ("are the gates green?", "gate_check", {"gate": "all"}),
    ("Could you please list the installed packages?", "list_packages", {}),
    (
        "show the last 5 entries of the governance ledger",
        "query_ledger",
        {"ledger": "governance", "max_entries": 5},
    ),
    ("what happened in the ledger?", "query_ledger", {"ledger": "governance"}),
    (
        "show me SESSION_START events",
        "query_ledger",
        {"ledger": "ho2m", "event_type": "SESSION_START"},
    ),
    (
        "show tool calls from the execution ledger",
        "query_ledger",
        {"ledger": "ho1m", "event_type": "TOOL_INTENT"},
    ),
    ("what is in HO1?", "list_files", {"path": "HO1"}),
    ("list the files", "list_files", {"path": "."}),
    ("what files are here?", "list_files", {"path": "."}),
    ("which files are in this directory?", "list_files", {"path": "."}),
    ("what is in here?", "list_files", {"path": "."}),
    ("what is in the current folder?", "list_files", {"path": "."}),
    ("what files are in here/src?", "list_files", {"path": "here/src"}),
    ('search for "ledger" here', "grep_dev", {"pattern": "ledger", "path": "."}),
    ("list the files in HO2/scratch.", "list_files", {"path": "HO2/scratch"}),
    ("read README.md lines 3-9", "read_file", {"path": "README.md", "offset": 3, "limit": 7}),
    ("show me docs/formats/ledger.md", "read_file", {"path": "docs/formats/ledger.md"}),
    ("read the file 'my notes'", "read_file", {"path": "my notes"}),
    (
        'replace "a b" with "c" in x/y.py',
        "edit_file_dev",
        {"path": "x/y.py", "old_string": "a b", "new_string": "c"},
    ),
    (
        'write "x" to a/b.txt',
        "write_file_dev",
        {"path": "a/b.txt", "content": "x", "create_dirs": True},
    ),
    ('search for "ledger" in docs', "grep_dev", {"pattern": "ledger", "path": "docs"}),
    ("grep foo( in src", "grep_dev", {"pattern": r"foo\(", "path": "src"}),
    ('run "ls -la ."', "run_shell_dev", {"command": "ls -la ."}),
    ("$ git status && ls .", "run_shell_dev", {"command": "git status && ls ."}),
]


@pytest.mark.parametrize(("text", "tool", "arguments"), PLAIN, ids=[row[0] for row in PLAIN])
def test_plain_english_becomes_a_call(text, tool, arguments):
    assert called(text, *CORE, *DEVELOPMENT) == [(tool, arguments)]


AGENTS = [
    ("show me README.md", "view", {"path": "README.md"}),
    ("what files are in the kernel directory?", "ls", {"path": "kernel"}),
    ('create notes.md with "hi"', "create_file", {"path": "notes.md", "content": "hi"}),
    (
        'replace "a" with "b" in notes.md',
        "str_replace",
        {"path": "notes.md", "old_str": "a", "new_str": "b"},
    ),
    ("move a.txt to b.txt", "move_file", {"path": "a.txt", "to": "b.txt"}),
    ("delete the file a.txt", "delete_file", {"path": "a.txt"}),
    ("search for fixme in src", "grep", {"pattern": "fixme", "path": "src"}),
    ("find *.py in src", "find", {"pattern": "*.py", "path": "src"}),
    (
        'write an output named report with the content "done"',
        "write_output",
        {"name": "report", "content": "done"},
    ),
    ('run "git status"', "run_shell", {"command": "git status"}),
]


@pytest.mark.parametrize(("text", "tool", "arguments"), AGENTS, ids=[row[0] for row in AGENTS])
def test_an_agents_own_tools_are_used_where_it_has_those(text, tool, arguments):
    assert called(text, *AGENT) == [(tool, arguments)]


EXACT = [
    ("list_packages", "list_packages", {}),
    (
        "list_files path=HOT/kernel max_depth=2",
        "list_files",
        {"path": "HOT/kernel", "max_depth": 2},
    ),
    ('list_files {"path": "a b"}', "list_files", {"path": "a b"}),
    (
        'list_files path="a \\"b\\"\\n" max_depth=x',
        "list_files",
        {"path": 'a "b"\n', "max_depth": "x"},
    ),
    ("list_files path='a b' create_dirs=true", "list_files", {"path": "a b", "create_dirs": True}),
    ("list_files agent=root", "list_files", {"agent": "root"}),
]


@pytest.mark.parametrize(("text", "tool", "arguments"), EXACT, ids=[row[0] for row in EXACT])
def test_a_call_can_be_written_out(text, tool, arguments):
    assert called(text, *CORE) == [(tool, arguments)]


@pytest.mark.parametrize("text", [row[0] for row in (*ADMIN_SESSION, *PLAIN, *AGENTS, *EXACT)])
def test_a_tool_that_the_request_does_not_offer_is_never_called(text):
    turn = ask(text)

    assert turn.tool_calls == ()
    assert turn.text


def test_it_says_which_tool_is_missing():
    turn = ask("delete a.txt", *CORE)

    assert "delete_file, which I do not have here" in turn.text


@pytest.mark.parametrize("text", ["tell me a joke", "show me everything", "", "list_files path"])
def test_what_it_does_not_understand_it_says_with_what_it_can_do(text):
    turn = ask(text, *CORE)

    assert turn.tool_calls == ()
    assert "do not understand" in turn.text
    assert "query_ledger: show me turn events from the session ledger" in turn.text


def test_results_are_answered_with():
    turn = ask("run the gate check", *CORE, messages=did("gate_check", "8 of 8 passed"))

    assert (turn.text, turn.tool_calls) == ("The gates say:\n8 of 8 passed", ())


def test_an_error_is_said_as_one():
    messages = did("read_file", "error[policy.secret]: no", is_error=True)

    turn = ask("read .env", *CORE, messages=messages)

    assert turn.text == "read_file failed:\nerror[policy.secret]: no"


def test_a_long_result_is_cut_and_says_so():
    turn = ask("read a.txt", *CORE, messages=did("read_file", "x" * 9_000))

    assert turn.text.endswith("[the result has 1000 more characters, which are not repeated here]")


def test_steps_are_done_one_after_another():
    text = "run the gate check, then list the packages\nread README.md"
    first = did("gate_check", "fine")
    second = did("list_packages", "PKG-A")
    third = did("read_file", "# Title")

    assert called(text, *CORE) == [("gate_check", {"gate": "all"})]
    assert called(text, *CORE, messages=first) == [("list_packages", {})]
    assert called(text, *CORE, messages=(*first, *second)) == [("read_file", {"path": "README.md"})]
    assert ask(text, *CORE, messages=(*first, *second, *third)).text == (
        "The gates say:\nfine\n\nInstalled:\nPKG-A\n\nread_file:\n# Title"
    )


def test_a_step_that_failed_ends_it():
    text = "delete a.txt then delete b.txt"
    turn = ask(text, *AGENT, messages=did("delete_file", "error", is_error=True))

    assert turn.tool_calls == ()
    assert "1 more of your requests not done" in turn.text


def test_no_step_is_done_before_all_are_understood():
    turn = ask("delete a.txt then make me rich", *AGENT)

    assert turn.tool_calls == ()
    assert "'make me rich'" in turn.text


def test_words_inside_quotation_marks_divide_nothing():
    text = 'write a file at a.txt with the content "one\nthen two"'

    assert called(text, *AGENT) == [("create_file", {"path": "a.txt", "content": "one\nthen two"})]


def test_in_a_prompt_the_users_own_words_count():
    text = "run the gate check\n<user_message>list packages</user_message>"

    assert called(text, *CORE) == [("list_packages", {})]


CLASSES = [
    ("hello", "greeting", "low"),
    ("run the gate check", "command", "low"),
    ("what is that?", "question", "low"),
    ("blah", "other", "high"),
]


@pytest.mark.parametrize(("text", "act", "ambiguity"), CLASSES)
def test_it_classifies_by_the_schemas_own_words(text, act, ambiguity):
    acts = {"type": "string", "enum": ["question", "command", "greeting", "other"]}
    levels = {"type": "string", "enum": ["low", "high"]}
    schema = {
        "type": "object",
        "properties": {"speech_act": acts, "ambiguity": levels},
        "required": ["speech_act", "ambiguity"],
        "additionalProperties": False,
    }

    turn = ask(text, output=OutputSchema("classify", schema))

    assert turn.structured == {"speech_act": act, "ambiguity": ambiguity}


@pytest.mark.parametrize(
    ("ambiguity", "value"),
    [({"type": "number"}, 0.1), ({"type": "boolean"}, False), ({"type": "string"}, "low")],
)
def test_it_classifies_without_any_words_given(ambiguity, value):
    schema = {
        "type": "object",
        "properties": {"speech_act": {"type": "string"}, "ambiguity": ambiguity},
        "required": ["speech_act", "ambiguity"],
    }

    turn = ask("hello", output=OutputSchema("classify", schema))

    assert turn.structured == {"speech_act": "greeting", "ambiguity": value}


def test_an_answer_with_a_schema_holds_its_text():
    schema = {
        "type": "object",
        "properties": {"response_text": {"type": "string"}},
        "required": ["response_text"],
        "additionalProperties": False,
    }
    messages = did("gate_check", "fine")

    turn = ask("run the gate check", *CORE, messages=messages, output=OutputSchema("o", schema))

    assert turn.structured == {"response_text": "The gates say:\nfine"}


def test_a_schema_beyond_it_gets_no_structured_answer():
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 5}}}

    turn = ask("hello", output=OutputSchema("o", {**schema, "required": ["n"]}))

    assert turn.structured is None
    assert "does not fit" in turn.structured_problem


def test_it_streams_and_can_be_cancelled():
    listener, token = Listener(), CancelToken()
    request = ModelRequest((UserMessage("help"),), tools=schemas(*CORE))

    turn = BuiltinModel().route(request, on_text=listener, cancel=token)
    token.cancel()
    stopped = BuiltinModel().route(request, cancel=token)

    assert "".join(listener.pieces) == turn.text
    assert len(listener.pieces) > 1
    assert stopped.stop is Stop.CANCELLED


def test_every_call_has_an_id_of_its_own():
    model = BuiltinModel()
    request = ModelRequest((UserMessage("list packages"),), tools=schemas(*CORE))

    ids = {model.route(request).tool_calls[0].id for _ in range(10)}

    assert len(ids) == 10
