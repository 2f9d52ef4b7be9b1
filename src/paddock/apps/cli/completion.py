"""`paddock completion`."""

import argparse
from typing import Final

from paddock.apps.cli.console import Console
from paddock.apps.cli.options import Options

_BASH: Final = """\
_paddock() {{
    local words="{words}"
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
    else
        words="--json --plane --help"
        COMPREPLY=($(compgen -o default -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
    fi
}}
complete -o default -F _paddock paddock
"""
_ZSH: Final = """\
#compdef paddock
_paddock() {{
    if (( CURRENT == 2 )); then
        compadd -- {words}
    else
        compadd -- --json --plane --help
        _files
    fi
}}
compdef _paddock paddock
"""
_FISH: Final = """\
complete -c paddock -n __fish_use_subcommand -f -a "{words}"
complete -c paddock -l json -d "print one JSON value"
complete -c paddock -l plane -r -d "the project or bare plane"
"""
_SCRIPTS: Final = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


class Completion:
    """A script that teaches a shell Paddock's commands."""

    summary = "Print a completion script for bash, zsh or fish."
    examples = '  eval "$(paddock completion bash)"\n  paddock completion fish | source'

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """The shell."""
        parser.add_argument("shell", choices=sorted(_SCRIPTS))

    def run(self, options: Options, console: Console) -> int:
        """Print it."""
        from paddock.apps.cli.main import COMMANDS

        script = _SCRIPTS[options.shell].format(words=" ".join(COMMANDS))
        if options.json:
            console.write_json({"shell": options.shell, "script": script})
        else:
            console.print(script)
        return 0


COMMAND = Completion()
