"""Commands in a fence: planned, run, looked at, and only then brought into the workspace.

    values.py                    the nouns; what is asked of a shell, and what came of it
    host/ facts.py               what a plan must know of this host
    plan.py hidden.py strictest.py              policy and facts → a plan
    git_config.py                what a command has of git on the host
    backends.py canary.py remedies.py                       what works here, by trying
    stage.py staging.py area.py launcher.py   the backend that stages, with overlays
    git_layer.py                 its second layer, over a git directory outside the workspace
    claims.py caches.py          directories that go away with whoever made them; one that stays
    landlock.py                  the backend for hosts without user namespaces
    inside/                      what runs in the sandbox, alone with kernel/
    conversation.py capture.py spooling.py   from a command's start to its end
    tracked_view.py              what git tracks of the closed files, as commands see it
    changes/ git/                what it changed: judged, settled, committed, kept
    streams.py telling.py shell.py   what is told of it; one agent's shell

Dangers: the command is anybody's and runs with the user's rights until the kernel says
otherwise; it can outlive its caller, fill a disk, pour output, race the commit. Each
module names its own under `# Threat:`; what is not covered is in docs/threat-model.md.
"""
