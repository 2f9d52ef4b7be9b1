"""The policy files that `paddock init` writes: the defaults, said aloud."""

from typing import Final

_PROJECT_HEAD: Final = b"""\
# What agents may do in this project. Commit and review it like code: agents can
# read this file, and none can write it.
#
# Everything below says what holds anyway, as comments. To change something, take
# away the "# " before its lines and its [table].
# After an edit by hand, look at what it grants and accept it: paddock trust
# Ask about one action:  paddock policy explain "tool:file:create .git/config"
"""

_BARE_HEAD: Final = b"""\
# What agents may do on this plane. Operators change it, agents never: everything
# in HOT/config, the ledgers and agents/*/agent.json are Paddock's own files.
#
# Everything below says what holds anyway, as comments. To change something, take
# away the "# " before its lines and its [table].
# It holds for the admin agent, whose workspace is the plane itself, and for every
# agent under agents/, relative to that agent's own workspace.
# Ask about one action:  paddock policy explain "tool:file:create HOT/config/x"
"""

_BODY: Final = b"""\

# Paths, for every writer, commands included. As in .gitignore: without a slash at
# any depth, with a leading slash from the project's root, a directory covers what
# is below it, and ! takes back what an earlier line of the same list said.
#
# [paths]
# # Nobody writes these. What git itself writes in .git/ lands all the same, as by
# # git commit in a command, but no hook and no configuration: git under [shell].
# protected = [".git/", "*.pem"]
# # Only commands write these; file tools do not.
# generated = ["node_modules/", "package-lock.json", "yarn.lock"]
# # Writing here is allowed, with a warning that model and person can see.
# warned    = [
#     "/src/**",
#     "/plugins/**/agents/*.md", "/plugins/*/commands/*.md", "/plugins/*/skills/**",
#     "/.claude-plugin/**",
# ]
# # No warning here.
# safe      = ["/docs/**", "/agent_sandbox/**", "/tests/**", "/*.md"]
# # Not even readable, and not shown; nobody writes these either.
# secret    = [
#     ".env", ".env.*", ".envrc", "*.key",
#     "!.env.example", "!.env.sample", "!.env.template", "!.env.dist",
# ]
# # In folders of dependencies (.venv, node_modules, vendor, target and their kin) commands
# # meet only those of protected and secret that have a slash: "**/*.key" holds there, too.

# An agent's profile says what it is allowed, what is asked about, what is denied, and
# which commands run without a question because a sandbox holds them: `confine`. Where
# no sandbox works whole they are asked about.
# The strictest matching rule wins; where none matches, `otherwise`; then no.
# Built in: open, standard, locked (reads only), admin, reviewer (commands run, and
# what they change is thrown away) and readonly-commands, to be extended. `extends` names
# one profile or several and keeps all that they say: lists are joined, tables merged key
# by key. Without it a profile here replaces the built-in one of its name whole: with a
# `deny` alone it would allow nothing. This is `standard` as it is built in; the tools
# of a client that it allows only read, or organise its work:
#
# [profiles.standard]
# allow = [
#     "tool:file:*", "tool:search:*", "tool:output:*",
#     "tool:client:Agent", "tool:client:Task", "tool:client:TaskCreate",
#     "tool:client:TaskGet", "tool:client:TaskList", "tool:client:TaskOutput",
#     "tool:client:TaskStop", "tool:client:TaskUpdate", "tool:client:Skill",
#     "tool:client:TodoWrite", "tool:client:ToolSearch", "tool:client:Glob",
#     "tool:client:Grep", "tool:client:LS", "tool:client:ListAgents",
#     "tool:client:AskUserQuestion", "tool:client:EnterPlanMode", "tool:client:ExitPlanMode",
# ]
# otherwise = { "tool:shell:*" = "confine", "tool:mcp:*" = "ask", "tool:client:*" = "ask" }
#
# In its place, to add to it:
#
# extends = ["standard", "readonly-commands"]
# ask     = ["tool:shell:run git commit *"]
# deny    = ["tool:shell:run git push *"]
#
# The long form of a rule has a reason and examples. Examples are tests: a false
# one stops the load.
#
# [[profiles.standard.rules]]
# action    = "tool:file:create migrations/**"
# outcome   = "ask"
# reason    = "migrations are reviewed by hand"
# match     = ["tool:file:create migrations/0001.sql"]
# not_match = ["tool:file:create src/migrations.py"]

# Commands run in a sandbox. network: none, loopback (a private one) or host. git:
# safe, read-only or none. enforcement: required, or best-effort where a host lacks
# a part of it. commit: each (allowed changes land, others are refused), all (all or
# nothing) or none (they are thrown away). approve: the command line, or the diff of
# what it did. env: variables that a call may set, as ["CI", "PYTEST_*"]. caches: a
# private ~/.cache that the commands of a workspace share. In a command's PATH,
# directories of the workspace come last: write .venv/bin/python.
#
# [shell]
# network     = "loopback"
# git         = "safe"
# enforcement = "required"
# commit      = "each"
# approve     = "command"
# env         = []
# caches      = true
# confine_max = { files = 500, mb = 200, deleted = 50 }   # more waits for a person

# A client's own tools under `paddock hook`. on_allow: silent or approve. warnings: all,
# once or off. shell: confine (its commands run in the sandbox) or read (a line is judged
# by its words alone). outside: commands that are left to the client, as ["docker *"].
#
# [hook]
# on_allow = "silent"
# warnings = "once"
# shell    = "confine"
# outside  = []
#
# An agent, or a kind of agent of a client, with a stricter profile:
#
# [agents."Explore"]
# profile = "locked"
"""

POLICY_TEMPLATE: Final = _PROJECT_HEAD + _BODY

BARE_POLICY_TEMPLATE: Final = _BARE_HEAD + _BODY.replace(b"the project's root", b"the root")
