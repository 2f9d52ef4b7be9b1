"""A policy file in which every table stands, and one policy for everybody."""

from msgspec import Struct

from paddock.policy.engine import Policy
from paddock.policy.questions.record import PastDecision
from paddock.values.decisions import Agent, AgentChain, client_kind


class OnePolicy(Struct, frozen=True, dict=True):
    """The same policy whichever agent meets it."""

    policy: Policy

    def policy_for(self, agent: str) -> Policy:
        return self.policy

    def is_whole(self, past: PastDecision) -> bool:
        return True


def chain_below(profile: str, name: str) -> AgentChain:
    """The agent `main` with this profile, or a client's kind of agent below it."""
    main = (Agent("main", profile),)
    return main if name == "main" else client_kind(main, name)


EVERYTHING = """
[paths]
protected = [".git/", ".env*", "*.key", "*.pem", "!docs/example.key"]
generated = ["node_modules/", "package-lock.json", "yarn.lock"]
warned    = ["/src/**", "/plugins/*/agents/*.md"]
safe      = ["/docs/**", "/agent_sandbox/**", "/tests/**", "/*.md"]
secret    = [".env*", "*.key"]

[profiles.standard]
allow = ["tool:file:*", "tool:search:*", "tool:output:*", "tool:client:Agent"]
ask   = ["tool:mcp:call mcp__toy__*"]
deny  = ["tool:file:delete docs/**"]
otherwise = { "tool:shell:*" = "ask" }

[[profiles.standard.rules]]
action  = "tool:file:create migrations/**"
outcome = "ask"
reason  = "migrations are reviewed by hand"
match     = ["tool:file:create migrations/0001.sql"]
not_match = ["tool:file:create src/migrations.py"]

[[profiles.standard.rules]]
action  = "tool:shell:*"
outcome = "ask"
network = "host"

[shell]
network     = "loopback"
git         = "read-only"
read        = ["/usr", "/lib", "/etc/ssl"]
write       = ["~/cache"]
enforcement = "best-effort"
approve     = "diff"
commit      = "all"
limits      = { processes = 16, memory_mb = 64 }
confine_max = { files = 7 }

[hook]
on_allow = "approve"
warnings = "all"
also_write = ["~/.claude/plans/**"]
shell = "read"
outside = ["docker *"]
paranoid = true
sandbox_ignored = false
[agents."Explore"]
profile = "locked"

[profiles.standard.shell]
commit = "each"

[limits]
view_bytes_max = 1000
shell_timeout_s = 60
[history]
bytes_max = 5
[mcp]
calls_max = 3

[ledger]
keep_model_contents = true
"""
