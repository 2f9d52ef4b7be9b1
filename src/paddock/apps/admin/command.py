"""`paddock admin`. The shell's modules are loaded only when it starts."""

from paddock.apps.command import Command, Options, flag, opt, where
from paddock.apps.console import Console
from paddock.assembly.project_open import open_project


def _admin(options: Options, console: Console) -> int:
    from paddock.apps.admin.session import Setting, find_sandbox
    from paddock.apps.admin.shell import run_admin

    project = open_project(*where(options, console))
    setting = Setting(project, options.agent, options.model, console.variables, find_sandbox)
    return run_admin(setting, options, console)


COMMAND = Command(
    "Talk with an agent in a shell: it answers, calls its tools, and asks you when its\n"
    "policy requires an approval. On a pipe, or with --plain, it reads and writes plain lines.",
    "  paddock admin\n"
    "  paddock admin --plane ~/plane --model anthropic:MODEL\n"
    "  echo 'what files are in the kernel directory?' | paddock admin",
    opt("--agent", "NAME", "the agent (default: main; admin in a bare plane)"),
    opt(
        "--model",
        "PROVIDER[:NAME]",
        "the model; scripted:FILE replays the answers in FILE, see docs/guides/embed.md",
    ),
    flag("--plain", "plain lines only, for screen readers and scripts"),
    do=_admin,
)
