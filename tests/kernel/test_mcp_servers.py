"""Servers that work: their files, their caches, what is offered of them, what is on record."""

import json
import threading
from pathlib import Path

import pytest
from msgspec import to_builtins

from paddock.assembly.project_open import open_project
from paddock.gateway.definitions import offered_name
from paddock.network import wall
from paddock.network.packages import FoundPackages, PackageIndex
from paddock.plane.environment import read_environment
from paddock.plane.trust import KeptPackages, network_here, write_packages
from paddock.policy.settings import PackageRule
from paddock.providers.failures import CancelToken
from paddock.runtime.prepared import Bounds
from tests.support.gateways import gates, program, table
from tests.support.networks import a_proxy, a_server, echo

pytestmark = [pytest.mark.needs("stage"), pytest.mark.needs("bash")]

RUNS = """
def act(arguments, id):
    try:
        return text(str(eval(arguments["text"])))
    except Exception as error:
        return text("refused " + type(error).__name__)
"""
NARROW = """
[profiles.standard]
allow = ["tool:file:*", "tool:mcp:*"]
deny = ["tool:file:* kept/**", "tool:mcp:call narrow/say"]
"""


def test_a_server_without_files_sees_an_empty_directory(tmp_path: Path):
    with gates(tmp_path / "y", table("none", RUNS)).opened("none") as terminal:
        terminal.yard.write({"a.txt": "a"})
        assert terminal.call("none__act", text="os.listdir('.')").content == "[]"


def test_a_server_that_reads_sees_the_workspace_and_what_it_writes_stays_its_own(tmp_path: Path):
    with gates(tmp_path / "y", table("reads", RUNS, files="read")).opened("reads") as terminal:
        terminal.yard.write({"a.txt": "first"})
        assert terminal.call("reads__act", text="open('a.txt').read()").content == "first"
        terminal.call("reads__act", text="open('a.txt', 'w').write('other')")
        assert (terminal.yard.root / "a.txt").read_text() == "first"


def test_what_a_server_writes_is_judged_and_lands_after_each_call(tmp_path: Path):
    tables = table("writes", RUNS, files="write")
    with gates(tmp_path / "y", tables, policy=NARROW).opened("writes") as terminal:
        terminal.yard.write({"kept/a.txt": "kept", "a.txt": "old"})
        result = terminal.call("writes__act", text="open('a.txt', 'w').write('new')")
        refused = terminal.call("writes__act", text="open('kept/a.txt', 'w').write('new')")

        assert result.content == "3"
        assert (terminal.yard.root / "a.txt").read_text() == "new"
        assert "changes refused by policy: 1: 'kept/a.txt'" in refused.content
        assert (terminal.yard.root / "kept" / "a.txt").read_text() == "kept"
        effects = [
            change["path"]
            for each in terminal.yard.entries("TOOL_RESULT")
            for change in each["metadata"].get("effects", [])
        ]
        assert effects == ["a.txt"]
        undone = terminal.yard.cli("undo", result.call_id)
        assert undone.status == 0, undone.err
        assert (terminal.yard.root / "a.txt").read_text() == "old"


def test_a_server_that_writes_sees_what_a_tool_wrote_meanwhile(tmp_path: Path):
    tables = table("writes", RUNS, files="write")
    with gates(tmp_path / "y", tables).opened("writes") as terminal:
        terminal.yard.write({"a.txt": "one"})
        assert terminal.call("writes__act", text="open('a.txt').read()").content == "one"
        terminal.call("create_file", path="a.txt", content="two")
        assert terminal.call("writes__act", text="open('a.txt').read()").content == "two"


@pytest.mark.loopback
def test_the_limit_of_connections_counts_for_each_call_of_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(wall, "_CONNECTIONS_IN_ALL_MAX", 2)
    connect = "socket.create_connection(('db.example.org', 5432), 5).recv(6)"
    tables = table("talks", RUNS, network=["db.example.org:5432"])
    with a_server(echo) as port, a_server(a_proxy({"db.example.org:5432": port})) as proxy:
        variables = {"HTTPS_PROXY": f"http://127.0.0.1:{proxy}"}
        made = gates(tmp_path / "y", tables, variables=variables)
        with made.opened("talks") as terminal:
            said = [terminal.call("talks__act", text=f"[{connect}]").content for _ in range(5)]
            over = terminal.call("talks__act", text=f"[{connect} for _ in range(3)]").content

    assert said == ["[b'hello\\n']"] * 5
    assert over == (
        "refused ConnectionResetError\n"
        "[policy refused its connection to db.example.org:5432: too many connections]"
    )


@pytest.mark.loopback
def test_the_result_of_a_call_says_what_policy_refused_the_server_and_who_can_allow_it(
    tmp_path: Path,
):
    tables = table("talks", RUNS, network=["db.example.org:5432"])
    with gates(tmp_path / "y", tables).opened("talks") as terminal:
        connect = "socket.create_connection(('{}', 443), 5)"
        refused = terminal.call("talks__act", text=connect.format("other.example.org"))
        plain = terminal.call("talks__act", text="1")
        recorded = terminal.yard.entries("NET_REFUSED")

    assert refused.content == (
        "refused gaierror\n[policy refused its connection to other.example.org: no rule allows it "
        '(add "other.example.org" to network of [mcp.servers.talks], then: paddock trust)]'
    )
    assert plain.content == "1"
    assert [each["metadata"]["host"] for each in recorded] == ["other.example.org"]


FETCHES = """
socket.create_connection(("packages.example.org", 443), 5)
"""


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({}, "it may reach no host: if it needs some, name them in network of [mcp.servers.runs]"),
        (
            {"packages": True},
            "the hosts of your package clients are unknown: paddock network show --refresh",
        ),
        (
            {"network": ["api.example.org:443"]},
            (
                "policy refused its connection to packages.example.org: no rule allows it "
                '(add "packages.example.org" to network of [mcp.servers.runs], then: paddock trust)'
            ),
        ),
    ],
)
def test_a_server_that_cannot_download_itself_says_what_its_table_lacks(
    tmp_path: Path, more: dict[str, object], why: str
):
    ran = gates(tmp_path / "y", table("runs", FETCHES, **more)).yard.cli("mcp", "review", "runs")

    assert "it has ended with the error output: " in ran.err
    assert f"; {why}" in " ".join(ran.err.split())


@pytest.mark.loopback
def test_a_package_runner_reaches_the_users_registries_and_is_told_which_they_are(tmp_path: Path):
    connect = "socket.create_connection(('packages.example.org', 5432), 5).recv(6)"
    tables = table("runs", RUNS, packages=True) + table("other", RUNS)
    index = PackageIndex("uv", "UV_DEFAULT_INDEX", "https://packages.example.org/simple", "uv")
    rules = (PackageRule("tool:net:connect packages.example.org:5432"),)
    kept = KeptPackages("2026-11-28", network_here(), rules, to_builtins(FoundPackages((index,))))
    with a_server(echo) as port, a_server(a_proxy({"packages.example.org:5432": port})) as proxy:
        variables = {"HTTPS_PROXY": f"http://127.0.0.1:{proxy}"}
        made = gates(tmp_path / "y", tables, variables=variables)
        project = open_project(made.yard.root, read_environment(made.yard.all_variables))
        write_packages(kept, project.root, project.environment)
        with made.opened("runs", "other") as terminal:
            said = [
                terminal.call(f"{name}__act", text=f"(os.environ.get('UV_DEFAULT_INDEX'), {did})")
                for name in ("runs", "other")
                for did in (connect, "0")
            ]

    assert [each.content for each in said] == [
        "('https://packages.example.org/simple', b'hello\\n')",
        "('https://packages.example.org/simple', 0)",
        "refused gaierror",
        "(None, 0)",
    ]


def test_a_servers_caches_are_its_own(tmp_path: Path):
    keeps = "open(os.environ['XDG_CACHE_HOME'] + '/kept', 'w').write('1')"
    looks = "os.listdir(os.environ['XDG_CACHE_HOME'])"
    tables = table("one", RUNS) + table("two", RUNS)
    with gates(tmp_path / "y", tables).opened("one", "two") as terminal:
        terminal.call("one__act", text=keeps)
        assert "kept" in terminal.call("one__act", text=looks).content
        assert "kept" not in terminal.call("two__act", text=looks).content
        ran = terminal.run("ls -a ~/.cache")
        assert "kept" not in str(ran["stdout"])


def test_nothing_is_offered_before_somebody_has_looked_and_nothing_is_started(tmp_path: Path):
    made = gates(tmp_path / "y", table("new", "open('/tmp/x', 'w')"))
    with made.yard.opened() as terminal:
        names = [each.name for each in terminal.runtime.tools.list_all()]
        assert not any(name.startswith(("new__", "mcp_")) for name in names)
        assert "paddock mcp review new" in terminal.runtime.notices[-1]
        assert terminal.call("new__say", text="x").refusal.code == "tool.unknown"


def test_a_project_that_is_not_trusted_starts_nothing(tmp_path: Path):
    made = gates(tmp_path / "y", table("mine"))
    made.review("mine")
    policy = made.yard.root / "paddock.toml"
    policy.write_text(policy.read_text() + "\n# changed\n")
    with made.yard.opened() as terminal:
        assert terminal.call("mine__say", text="x").refusal.code == "tool.unknown"


def test_a_server_is_started_as_it_was_trusted_or_its_review_is_worth_nothing(tmp_path: Path):
    made = gates(tmp_path / "y", table("mine"))
    made.review("mine")
    made.yard.govern(
        made.yard.policy.replace('VERSION, PROMPTS = \\"1\\"', 'VERSION, PROMPTS = \\"2\\"')
    )
    with made.yard.opened() as terminal:
        assert terminal.call("mine__say", text="x").refusal.code == "tool.unknown"


def test_tools_of_the_table_filter_and_the_profile_decides(tmp_path: Path):
    tables = table("narrow", tools={"allow": ["s*"]}) + table("wide")
    with gates(tmp_path / "y", tables, policy=NARROW).opened("narrow", "wide") as terminal:
        assert terminal.call("narrow__act").refusal.code == "tool.unknown"
        assert terminal.call("narrow__say", text="x").refusal.code == "policy.denied"
        assert terminal.call("wide__say", text="x").content == "x"


def test_a_rule_looks_at_the_arguments_that_the_server_gets(tmp_path: Path):
    policy = """
[profiles.standard]
[[profiles.standard.rules]]
action = "tool:mcp:call plain/say"
outcome = "allow"
when = { text = { in = ["this"] } }
"""
    with gates(tmp_path / "y", table("plain"), policy=policy).opened("plain") as terminal:
        assert terminal.call("plain__say", text="this").content == "this"
        assert terminal.call("plain__say", text="that").refusal is not None
        assert terminal.call("plain__say").refusal is not None


def test_each_call_is_on_record_with_its_arguments(tmp_path: Path):
    with gates(tmp_path / "y", table("plain")).opened("plain") as terminal:
        result = terminal.call("plain__say", text="on record")
        intent, *_ = [
            each
            for each in terminal.yard.entries("TOOL_INTENT")
            if each["call_id"] == result.call_id
        ]
        assert intent["metadata"]["actions"] == ["tool:mcp:call plain/say"]
        assert intent["metadata"]["arguments"] == {"text": "on record"}
        reviewed = terminal.yard.entries("MCP_REVIEWED", "governance")
        assert [each["metadata"]["server"] for each in reviewed] == ["plain"]


def test_a_result_that_is_too_long_is_cut_and_kept_whole(tmp_path: Path):
    own = 'def act(arguments, id): return text("x" * 300000)'
    with gates(tmp_path / "y", table("long", own)).opened("long") as terminal:
        content = terminal.call("long__act").content
        digest = content.partition("history as ")[2].partition(";")[0]
        kept = terminal.yard.cli("ledger", "content", digest)

    assert len(content) < 101_000
    assert json.loads(kept.out)["content"][0]["text"] == "x" * 300_000


def test_a_name_is_shortened_by_a_digest_and_always_to_the_same():
    assert offered_name("issues", "get_issue") == "issues__get_issue"
    long = offered_name("issues", "x" * 90)
    assert (long, len(long)) == (offered_name("issues", "x" * 90), 50)
    assert long != offered_name("issues", "x" * 91)
    assert offered_name("issues", "a.b") != offered_name("issues", "a/b")
    assert offered_name("a", "view").startswith("a__")


def test_a_tool_of_a_servers_own_never_takes_the_name_of_ours(tmp_path: Path):
    own = 'TOOLS += [tool("view"), tool("run_shell")]'
    with gates(tmp_path / "y", table("mcp", own)).opened("mcp") as terminal:
        names = [each.name for each in terminal.runtime.tools.list_all()]
        assert names.count("view") == 1
        assert {"mcp__view", "mcp__run_shell"} <= set(names)


def test_invisible_text_in_a_description_is_seen():
    from paddock.gateway.definitions import Definition

    shown = Definition("tool", "x", {"description": "a\u202eb\u200bc\U000e0041\x1b[1m"}).description
    assert shown == "a\\u202eb\\u200bc\\U000e0041\\x1b[1m"


def test_the_command_line_adds_reviews_and_says_what_changed(tmp_path: Path):
    made = gates(tmp_path / "y")
    added = made.yard.cli("mcp", "add", "mine", "--yes", "--", *program())
    assert added.status == 0, added.err
    assert "new: tool say" in added.out
    twice = made.yard.cli("mcp", "add", "mine", "--yes", "--", *program())
    assert twice.status == 2
    assert "already has an MCP server 'mine'" in twice.err
    assert "then: paddock trust, and paddock mcp review mine" in twice.err
    other = made.yard.cli("mcp", "add", "other", "--yes", "--", *program())
    assert other.status == 0, other.err
    again = made.yard.cli("mcp", "review")
    assert "nothing has changed" in again.out
    unknown = made.yard.cli("mcp", "review", "nobody")
    assert unknown.status == 2
    assert "policy names no MCP server 'nobody'" in unknown.err


def test_a_runtime_that_is_closed_ends_servers_that_never_stop_talking(tmp_path: Path):
    own = """
    def act(arguments, id):
        def talk():
            while True:
                say({"jsonrpc": "2.0", "method": "notifications/message",
                     "params": {"level": "info", "data": "x"}})
                time.sleep(0.01)
        threading.Thread(target=talk, daemon=True).start()
        return text("talks")
    """
    with gates(tmp_path / "y", table("talks", own)).opened("talks") as terminal:
        assert terminal.call("talks__act").content == "talks"


def test_a_call_that_leaves_while_its_server_starts_leaves_a_server_that_is_found(tmp_path: Path):
    own = "time.sleep(2)"
    made = gates(tmp_path / "y", table("late", own))
    with made.opened("late") as terminal:
        cancel = CancelToken()
        threading.Timer(0.5, cancel.cancel).start()
        left = terminal.runtime.call("late__say", {"text": "x"}, bounds=Bounds(cancel=cancel))
        assert left.refusal.code == "call.cancelled"
        assert terminal.call("late__say", text="here").content == "here"
