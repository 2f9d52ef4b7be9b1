"""The plan: what policy lists and the host has, less what is closed; the strictest of a chain."""

import pytest
from msgspec.structs import replace

from paddock.errors import ConfigError
from paddock.policy.decide import shell_for
from paddock.policy.engine import PolicySource, load_policy
from paddock.policy.settings import ShellLimits
from paddock.sandbox.git_config import take_git
from paddock.sandbox.host.host_facts import (
    Closed,
    GitFacts,
    GitFilter,
    HostFacts,
    HostListing,
    LeftOut,
    ResolvedPath,
    Toolchain,
    is_below,
    shared,
    topmost,
)
from paddock.sandbox.plan import compile_plan, plan_digest, plan_json
from paddock.sandbox.values import GitConfig, SandboxPlan, line_network
from paddock.values.decisions import Agent

MAIN = (Agent("main", "standard"),)
SYSTEM = (
    ResolvedPath("/usr", "/usr"),
    ResolvedPath("/bin", "/usr/bin", (("/bin", "usr/bin"),)),
    ResolvedPath("/etc/ssl", "/etc/ssl"),
)
FACTS = HostFacts(
    workspace="/work/ws",
    home="/home/u",
    existing=SYSTEM,
    search_path=(
        ResolvedPath("/usr/bin", "/usr/bin"),
        ResolvedPath("/bin", "/usr/bin", (("/bin", "usr/bin"),)),
    ),
    closed=(Closed("/home/u/.local/state/paddock", "Paddock's own state"),),
    memory_mb=8000,
    caches="/state/caches/1/tree",
)


def policy(text: str = ""):
    return load_policy(PolicySource("paddock.toml", text.encode()))


def plan(text: str = "", facts: HostFacts = FACTS, chain=MAIN) -> SandboxPlan:
    return compile_plan(policy(text), chain, facts).plan


def left_out(text: str = "", facts: HostFacts = FACTS) -> tuple[LeftOut, ...]:
    return compile_plan(policy(text), MAIN, facts).left_out


def moved_last(facts: HostFacts) -> tuple[str, ...]:
    return compile_plan(policy(), MAIN, facts).moved_last


def test_by_default_the_system_directories_that_exist_are_readable():
    assert plan() == SandboxPlan(
        workspace="/work/ws",
        readable=("/etc/ssl", "/usr"),
        writable=(),
        hidden=(),
        network="loopback",
        git="safe",
        commit="each",
        enforcement="required",
        limits=ShellLimits(memory_mb=6000),
        caches="/state/caches/1/tree",
        environment=(("PATH", "/usr/bin:/bin"),),
        policy_digest=policy().digest,
        git_config=take_git(GitFacts(), ("/usr",))[0],
        links=(("/bin", "usr/bin"),),
        unix_sockets=True,
    )
    assert left_out() == ()


@pytest.mark.parametrize(
    ("text", "limits", "caches"),
    [
        ("memory_mb = 0", ShellLimits(memory_mb=6000), True),
        ("memory_mb = 100", ShellLimits(memory_mb=100), True),
        ("memory_mb = 9000, cpu_s = 7", ShellLimits(memory_mb=6000, cpu_s=7), True),
        ("processes = 5 }\ncaches = false\n#{", ShellLimits(5, 6000), False),
    ],
)
def test_limits_and_caches_are_as_policy_says(text: str, limits: ShellLimits, caches: bool):
    made = plan(f"[shell]\nlimits = {{ {text} }}\n")

    assert (made.limits, bool(made.caches)) == (limits, caches)


def test_a_parents_number_is_stricter_than_no_limit_of_its_child():
    text = "[profiles.{}.shell]\nenv = {}\nlimits = {{ {} }}\ncaches = {}\n"
    chained = text.format("loose", '["CI", "A_*"]', "cpu_s = 0, memory_mb = 0", "true")
    chained += text.format("tight", '["A_B", "C_*"]', "cpu_s = 9, memory_mb = 50", "false")
    child = (Agent("main", "loose", parent="lead"), Agent("lead", "tight"))
    made = plan(chained, FACTS, child)

    assert made.limits == ShellLimits(memory_mb=50, cpu_s=9)
    assert made.caches == ""
    assert shell_for(policy(chained), child).env == ("A_B",)


def test_a_filter_of_the_users_is_in_the_plan_where_commands_read_its_program():
    there = GitFilter("a", False, (("clean", "a -x"),), (("/usr/bin/a",),))
    closed = GitFilter("b", False, (("clean", "b"),), (("/home/u/bin/b",),))
    facts = replace(FACTS, git=GitFacts(values=(("user.name", "U"),), filters=(there, closed)))

    values = dict(plan(facts=facts).git_config.values)

    assert (values["user.name"], values["filter.a.clean"]) == ("U", "a -x")
    assert "exit 1" in values["filter.b.clean"]
    assert [each.path for each in left_out(facts=facts)] == ["git filter b"]


def test_what_a_command_has_of_gits_configuration_is_shown_and_digested():
    named = replace(plan(), git_config=GitConfig(values=(("user.name", "U"),), ignored="*.swp\n"))

    assert plan_json(named)["git_config"] == {
        "values": [["user.name", "U"]],
        "ignored": "*.swp\n",
        "attributes": "",
        "environment": {},
        "is_signing": False,
    }
    others = (GitConfig(), GitConfig(values=(("user.name", "U"),)), GitConfig(ignored="*.swp\n"))
    digests = {plan_digest(replace(plan(), git_config=each)) for each in others}
    assert len({*digests, plan_digest(named)}) == 4


def test_a_place_of_the_policy_that_does_not_exist_is_said():
    assert left_out('[shell]\nread = ["/usr", "/srv/data"]\n') == (
        LeftOut("/srv/data", "it does not exist"),
    )


@pytest.mark.parametrize("path", ["~", "/home/u", "/home", "/"])
def test_the_home_directory_is_never_readable_as_such(path):
    real = "/home/u" if path == "~" else path
    facts = replace(FACTS, existing=(*SYSTEM, ResolvedPath(real, real)))
    text = f'[shell]\nread = ["/usr", "{path}"]\n'
    assert plan(text, facts).readable == ("/usr",)
    assert left_out(text, facts) == (LeftOut(real, "it is or contains the home directory"),)
    inside = replace(FACTS, existing=(*SYSTEM, ResolvedPath("/home/u/data", "/home/u/data")))
    assert plan('[shell]\nread = ["/usr", "~/data"]\n', inside).readable == ("/home/u/data", "/usr")


def test_what_is_closed_is_cut_out_of_what_is_readable():
    facts = replace(
        FACTS,
        existing=(ResolvedPath("/usr", "/usr"),),
        closed=(Closed("/usr/local/plane", "the plane"),),
        listings=(
            HostListing("/usr", ("bin", "lib", "local"), (("/usr/lib64", "lib"),)),
            HostListing("/usr/local", ("bin", "plane")),
        ),
    )
    found = plan(facts=facts)
    assert found.readable == ("/usr/bin", "/usr/lib", "/usr/local/bin")
    assert ("/usr/lib64", "lib") in found.links


def test_a_place_around_a_closed_one_that_was_not_listed_is_left_out_whole():
    facts = replace(FACTS, closed=(Closed("/usr/local/plane", "the plane"),))
    assert plan(facts=facts).readable == ("/etc/ssl", "/usr/bin")
    assert [each.path for each in left_out(facts=facts)] == ["/usr"]


def test_a_workspace_in_a_system_directory_is_not_shown_twice():
    facts = replace(
        FACTS,
        workspace="/usr/src/app",
        listings=(HostListing("/usr", ("bin", "src")), HostListing("/usr/src", ("app", "linux"))),
    )
    assert plan(facts=facts).readable == ("/etc/ssl", "/usr/bin", "/usr/src/linux")


def test_what_lies_in_a_closed_place_is_left_out_and_said():
    facts = replace(
        FACTS,
        toolchains=(Toolchain("node", ("/home/u/.local/state/paddock/node",)),),
    )
    assert plan(facts=facts).readable == plan().readable
    assert left_out(facts=facts) == (
        LeftOut("/home/u/.local/state/paddock/node", "it is in Paddock's own state"),
    )


@pytest.mark.parametrize(
    "place", ["/home/u", "/home", "/home/u/.ssh", "/home/u/.ssh/bin", "/home/u/.config/gcloud/x"]
)
def test_a_toolchain_in_a_secret_place_or_that_is_the_home_is_left_out(place):
    facts = replace(FACTS, toolchains=(Toolchain("programs", (place,)),))
    assert plan(facts=facts).readable == plan().readable
    assert [each.path for each in left_out(facts=facts)] == [place]


def test_a_toolchain_is_readable_with_its_links_and_variables():
    chain = Toolchain(
        "pyenv",
        ("/home/u/.pyenv",),
        (("/home/u/.pyenv-link", ".pyenv"),),
        (("PYENV_ROOT", "/home/u/.pyenv"),),
    )
    facts = replace(
        FACTS,
        toolchains=(chain,),
        search_path=(
            ResolvedPath("/home/u/.pyenv/shims", "/home/u/.pyenv/shims"),
            *FACTS.search_path,
        ),
    )
    compiled = compile_plan(policy(), MAIN, facts)
    assert compiled.plan.readable == ("/etc/ssl", "/home/u/.pyenv", "/usr")
    assert dict(compiled.plan.environment) == {
        "PATH": "/home/u/.pyenv/shims:/usr/bin:/bin",
        "PYENV_ROOT": "/home/u/.pyenv",
    }
    assert ("/home/u/.pyenv-link", ".pyenv") in compiled.plan.links
    assert compiled.toolchains == ("pyenv: /home/u/.pyenv",)


def test_the_environment_is_an_allow_list():
    given = {
        "LANG": "de_DE.UTF-8",
        "LC_ALL": "C",
        "TERM": "xterm",
        "TZ": "UTC",
        "LC_": "x",
        "HOME": "/home/u",
        "TMPDIR": "/tmp",
        "PATH": "/evil",
        "AWS_SECRET_ACCESS_KEY": "s",
        "ANTHROPIC_API_KEY": "s",
        "LD_PRELOAD": "/x.so",
        "PYTHONPATH": "/x",
        "NODE_OPTIONS": "--require /x",
        "GIT_DIR": "/x",
        "BASH_ENV": "/x",
        "ENV": "/x",
        "PS4": "$(x)",
        "IFS": "x",
        "COLORTERM": "a\nb",
        "JAVA_HOME": "/usr/lib/jvm",
        "NODE_EXTRA_CA_CERTS": "/home/u/corp.pem",
        "PIP_CERT": "corp.pem",
        "SSL_CERT_DIR": "/usr/share/ca-certificates",
        "SSL_CERT_FILE": "/usr/share/ca.pem",
        "VIRTUAL_ENV": "/home/u/other/.venv",
        "CONDA_PREFIX": "/work/ws/env",
    }
    facts = replace(FACTS, variables=tuple(given.items()))
    assert dict(plan(facts=facts).environment) == {
        "CONDA_PREFIX": "/work/ws/env",
        "JAVA_HOME": "/usr/lib/jvm",
        "LANG": "de_DE.UTF-8",
        "LC_ALL": "C",
        "PATH": "/usr/bin:/bin",
        "SSL_CERT_DIR": "/usr/share/ca-certificates",
        "SSL_CERT_FILE": "/usr/share/ca.pem",
        "TERM": "xterm",
        "TZ": "UTC",
    }


def test_what_a_command_can_change_comes_last_on_the_search_path():
    facts = replace(
        FACTS,
        search_path=(
            ResolvedPath("/work/ws/.venv/bin", "/work/ws/.venv/bin"),
            ResolvedPath("/home/u/bin", "/home/u/bin"),
            *FACTS.search_path,
        ),
    )
    assert dict(plan(facts=facts).environment)["PATH"] == "/usr/bin:/bin:/work/ws/.venv/bin"
    assert moved_last(facts) == ("/work/ws/.venv/bin",)
    # What stood last anyway was not moved.
    behind = replace(facts, search_path=(*FACTS.search_path, facts.search_path[0]))
    assert dict(plan(facts=behind).environment)["PATH"] == "/usr/bin:/bin:/work/ws/.venv/bin"
    assert moved_last(behind) == ()
    alone = replace(facts, search_path=facts.search_path[:1])
    assert moved_last(alone) == ()


@pytest.mark.parametrize(
    "planted",
    [
        ResolvedPath("/work/ws/bin", "/usr/bin", (("/work/ws/bin", "/usr/bin"),)),
        ResolvedPath("/home/u/bin", "/usr/bin", (("/home/u/bin", "/w/b"), ("/w/b", "/usr/bin"))),
        ResolvedPath("/work/ws/a/../../../usr/bin", "/usr/bin"),
    ],
)
def test_so_does_what_a_command_can_make_lead_elsewhere(planted):
    facts = replace(FACTS, changeable=("/w",), search_path=(planted, *FACTS.search_path))
    assert dict(plan(facts=facts).environment)["PATH"] == f"/usr/bin:/bin:{planted.asked}"


@pytest.mark.parametrize("key", ["read", "write"])
@pytest.mark.parametrize("link", ["/work/ws/data", "/w/data"])
def test_a_link_that_a_command_can_have_made_opens_no_place_of_the_policy(key, link):
    text = f'[shell]\n{key} = ["{link}", "/opt/data"]\n'
    honest = ResolvedPath("/opt/data", "/srv/data", (("/opt/data", "/srv/data"),))
    planted = ResolvedPath(link, "/home/u/.ssh", ((link, "/home/u/.ssh"),))
    facts = replace(FACTS, changeable=("/w",), existing=(*SYSTEM, honest, planted))
    made = plan(text, facts)
    assert (made.readable, made.writable) == (
        (("/srv/data",), ()) if key == "read" else (("/etc/ssl", "/usr"), ("/srv/data",))
    )
    assert left_out(text, facts) == (
        LeftOut(link, "a link that commands can change leads to /home/u/.ssh"),
    )


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/home", "it is or contains the home directory"),
        ("/work", "it contains the workspace"),
        ("/work/ws/out", "it is in the workspace, where each path is judged"),
        ("/home/u/.local/state", "it overlaps Paddock's own state"),
    ],
)
def test_a_place_that_may_not_be_written_directly_is_left_out(path, why):
    facts = replace(FACTS, existing=(*SYSTEM, ResolvedPath(path, path)))
    text = f'[shell]\nwrite = ["{path}"]\n'
    assert plan(text, facts).writable == ()
    assert left_out(text, facts) == (LeftOut(path, why),)


def test_a_writable_place_is_not_listed_as_readable_besides():
    facts = replace(FACTS, existing=(*SYSTEM, ResolvedPath("/usr/cache", "/usr/cache")))
    text = '[shell]\nread = ["/etc/ssl", "/usr/cache"]\nwrite = ["/usr/cache"]\n'
    found = plan(text, facts)
    assert (found.readable, found.writable) == (("/etc/ssl",), ("/usr/cache",))


CHAINED = """
[profiles.wide.shell]
network = "host"
git = "none"
commit = "each"
enforcement = "best-effort"
read = ["/usr", "/etc/ssl"]
write = ["/var/cache"]
limits = { processes = 900, memory_mb = 100, file_mb = 9, cpu_s = 9 }

[profiles.wide]
allow = ["tool:*"]

[profiles.narrow.shell]
network = "none"
git = "safe"
commit = "all"
read = ["/usr/bin", "/etc"]
limits = { processes = 9, memory_mb = 900, file_mb = 9, cpu_s = 99 }

[profiles.narrow]
allow = ["tool:*"]
"""


def test_a_child_gets_the_strictest_of_its_chain():
    facts = replace(
        FACTS,
        existing=(
            *SYSTEM,
            ResolvedPath("/usr/bin", "/usr/bin"),
            ResolvedPath("/etc", "/etc"),
            ResolvedPath("/var/cache", "/var/cache"),
        ),
    )
    child = (Agent("main", "wide", parent="lead"), Agent("lead", "narrow"))
    found = plan(CHAINED, facts, child)
    assert (found.network, found.git, found.commit, found.enforcement) == (
        "none",
        "read-only",
        "all",
        "required",
    )
    assert (found.readable, found.writable) == (("/etc/ssl", "/usr/bin"), ())
    assert found.limits == ShellLimits(processes=9, memory_mb=100, file_mb=9, cpu_s=9)
    alone = plan(CHAINED, facts, (Agent("main", "wide"),))
    assert (alone.network, alone.git, alone.writable) == ("host", "none", ("/var/cache",))


NETWORKED = """
[profiles.standard]
allow = ["tool:file:*"]
otherwise = { "tool:shell:*" = "ask" }

[[profiles.standard.rules]]
action = "tool:shell:run npm install *"
outcome = "ask"
network = "host"

[[profiles.standard.rules]]
action = "tool:shell:run pytest *"
outcome = "allow"
network = "none"
"""


@pytest.mark.parametrize(
    ("line", "network"),
    [
        (None, "loopback"),
        ("npm install left-pad", "host"),
        ("make", "loopback"),
        ("pytest -q", "none"),
        ("npm install && curl http://example.com", "loopback"),
        ("npm install && pytest", "none"),
        ("npm install $(x", "loopback"),
        ("", "loopback"),
    ],
)
def test_a_rule_sets_the_network_for_just_its_command(line, network):
    assert line_network(policy(NETWORKED), MAIN, line) == network


def test_a_parent_without_such_a_rule_keeps_its_childs_command_off_the_network():
    text = NETWORKED + '[profiles.plain]\nallow = ["tool:*"]\n'
    chain = (Agent("main", "standard", parent="lead"), Agent("lead", "plain"))
    assert line_network(policy(text), chain, "npm install x") == "loopback"


OPENED = """
[profiles.standard]
extends = "standard"
allow = ["tool:net:connect example.org"]
[[profiles.standard.rules]]
action = "tool:shell:run pytest *"
outcome = "allow"
network = "loopback"
"""
FOR_PSQL = """
[profiles.standard]
extends = "standard"
[[profiles.standard.rules]]
action = "tool:net:request GET db.example.org/**"
outcome = "ask"
commands = ["psql *"]
"""


@pytest.mark.parametrize(
    ("text", "line", "network"),
    [
        ("", "make", "loopback"),
        ('[shell]\nnetwork = "policy"\n', "make", "loopback"),
        (OPENED, None, "policy"),
        (OPENED, "make", "policy"),
        (OPENED, "pytest -q", "loopback"),
        (f'[shell]\nnetwork = "loopback"\n{OPENED}', "make", "loopback"),
        (f'[shell]\nnetwork = "none"\n{OPENED}', "make", "none"),
        (f'[shell]\nnetwork = "host"\n{OPENED}', "make", "host"),
        (OPENED.replace("\nallow", '\ndeny = ["tool:net:*"]\nallow'), "make", "loopback"),
        (FOR_PSQL, None, "loopback"),
        (FOR_PSQL, "make", "loopback"),
        (FOR_PSQL, "psql -h db.example.org", "policy"),
        (FOR_PSQL, "psql -h db.example.org; make", "loopback"),
    ],
)
def test_a_line_has_the_network_of_policy_only_where_a_rule_opens_it(text, line, network):
    assert line_network(policy(text), MAIN, line) == network


def test_nobody_has_no_plan():
    with pytest.raises(ConfigError, match="a chain of 0 agents"):
        plan(chain=())


def test_the_digest_follows_everything_but_the_names_that_stand_there():
    base = plan()
    assert plan_digest(base) == plan_digest(plan())
    assert plan_digest(base).startswith("sha256:")
    assert plan_digest(replace(base, hidden=(".env",))) == plan_digest(base)
    changed = [
        replace(base, network="host"),
        replace(base, readable=("/usr",)),
        replace(base, environment=()),
        replace(base, limits=ShellLimits(cpu_s=1)),
        replace(base, policy_digest="sha256:1"),
        replace(base, caches=""),
        replace(base, caches_read_only=True),
        replace(base, workspace="/work/bad\udcff"),
    ]
    assert len({plan_digest(each) for each in (base, *changed)}) == len(changed) + 1


def test_what_was_asked_in_one_terminal_can_be_granted_in_another():
    def digest(**variables: str) -> str:
        return plan_digest(plan(facts=replace(FACTS, variables=tuple(variables.items()))))

    here = digest(TERM="dumb", LC_ALL="C", JAVA_HOME="/usr/lib/jvm")
    there = digest(TERM="xterm", COLUMNS="80", JAVA_HOME="/usr/lib/jvm")
    elsewhere = digest(TERM="dumb", LC_ALL="C", JAVA_HOME="/usr/lib/java")
    assert here == there != elsewhere


def test_the_printed_plan_has_every_field():
    assert set(plan_json(plan())) == set(SandboxPlan.__slots__)


def test_places_are_compared_by_whole_components():
    assert is_below("/a/b", "/a")
    assert is_below("/a", "/")
    assert not is_below("/ab", "/a")
    assert topmost(["/a/b", "/a", "/a-b", "/ab"]) == ("/a", "/a-b", "/ab")
    assert shared(["/a", "/b/c"], ["/a/x", "/b", "/d"]) == ("/a/x", "/b/c")
