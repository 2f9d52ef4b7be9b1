"""`paddock admin`. Nothing of the shell is loaded before it starts."""

from paddock.apps.command import Command, Options, flag, opt, where
from paddock.apps.console import Console
from paddock.assembly.project_open import open_project


def _admin(options: Options, console: Console) -> int:
    from paddock.apps.admin import shell
    from paddock.apps.admin.session import Setting, find_sandbox

    project = open_project(*where(options, console))
    setting = Setting(project, options.agent, options.model, console.variables, find_sandbox)
    streams = shell.ShellStreams(console.stdin, console.stdout, console.variables)
    if options.json:
        return shell.run_json(setting, streams)
    if options.plain:
        return shell.run_plain(setting, streams)
    return shell.run_admin(setting, streams)


COMMAND = Command(
    "Talk with an agent of a plane: it answers, calls its tools, and asks before it does\n"
    "what its policy asks about. On a pipe, or with --plain, lines are read and written.",
    "  paddock admin\n"
    "  paddock admin --plane ~/plane --model anthropic:MODEL\n"
    "  echo 'what files are in the kernel directory?' | paddock admin",
    opt("--agent", "NAME", "who answers (default: admin, or main)"),
    opt(
        "--model",
        "PROVIDER[:NAME]",
        "which model answers; scripted:FILE says what FILE says: docs/guides/embed.md",
    ),
    flag("--plain", "lines only: for screen readers and scripts"),
    do=_admin,
)
