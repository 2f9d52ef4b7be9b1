"""Commands in a fence: planned, run, looked at, and only then brought into the workspace.

    values                    what is asked of a shell, and what came of it
    host/ facts               what a plan must know of this host
    plan hidden               policy and facts → a plan
    git_config git_layer      what a command has of git on the host; tracked closed files
    backends canary           what works here, by trying, and what to do where it does not
    launcher                  the backend that stages, with overlays
    staging_area              directories that go away with whoever made them; caches, that stay
    landlock                  the backend for hosts without user namespaces
    inside/                   what runs in the sandbox, alone with kernel/
    conversation streams      a command from its start to its end, and its output
    connections               what a command that connects needs: ways out, keys, credentials
    changes/ git/             what it changed: judged, settled, committed, kept
    staged                    a command that has run, until its changes land; what is told of it
    sessions/                 what one command leaves to the next; commands that go on running
    shell                     one agent's shell

The command is anybody's and runs with the user's rights until the kernel says otherwise. Each
module names its dangers under `# Threat:`; what is not covered is in docs/threat-model.md.
"""
