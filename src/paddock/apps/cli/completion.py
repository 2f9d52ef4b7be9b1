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
        case "${{COMP_WORDS[1]}}" in
{bash_parts}
        esac
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
        case "$words[2]" in
{zsh_parts}
        esac
        compadd -- --json --plane --help
        _files
    fi
}}
compdef _paddock paddock
"""
_FISH: Final = """\
complete -c paddock -n __fish_use_subcommand -f -a "{words}"
{fish_parts}
complete -c paddock -l json -d "print one JSON value"
complete -c paddock -l plane -r -d "the project or bare plane"
"""
_BASH_PART: Final = '            {name}) words="$words {parts}" ;;'
_ZSH_PART: Final = "            {name}) compadd -- {parts} ;;"
_FISH_PART: Final = 'complete -c paddock -n "__fish_seen_subcommand_from {name}" -f -a "{parts}"'
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

        parts = {name: " ".join(row.parts) for name, row in COMMANDS.items() if row.parts}
        script = _SCRIPTS[options.shell].format(
            words=" ".join(COMMANDS),
            bash_parts=_rows(_BASH_PART, parts),
            zsh_parts=_rows(_ZSH_PART, parts),
            fish_parts=_rows(_FISH_PART, parts),
        )
        if options.json:
            console.write_json({"shell": options.shell, "script": script})
        else:
            console.print(script)
        return 0


def _rows(form: str, parts: dict[str, str]) -> str:
    return "\n".join(form.format(name=name, parts=words) for name, words in parts.items())


COMMAND = Completion()
