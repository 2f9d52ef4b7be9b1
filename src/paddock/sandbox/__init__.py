"""Sandboxed commands: planned, run, inspected, and only then committed to the workspace.

    values                    data types: plans, requests and results
    host/ facts               facts of this host that a plan needs
    plan hidden               policy and facts → a plan
    git_config git_layer      the host's git as a command sees it; tracked closed files
    backends canary           backends that work on this host, and remedies for those that do not
    launcher                  the backend that stages changes with overlays, or in a copied layer
    staging_area              directories that end with their process; caches that stay
    landlock                  the backend for hosts without user namespaces
    inside/                   code that runs in the sandbox; imports only kernel/
    conversation streams      a command from start to end, and its output
    connections               network access: proxies, host keys, credentials
    changes/ git/             a command's changes: judged, settled, committed, kept
    staged                    a finished command until its changes land; its result
    sessions/                 state kept from one command to the next; background commands
    shell                     one agent's shell

A command is untrusted and has the user's rights except where the kernel restricts it. Each
module names its dangers under `# Threat:`; docs/threat-model.md lists what is not covered.
"""
