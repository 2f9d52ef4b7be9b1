"""`paddock completion`."""

import argparse
from typing import Final

from paddock.apps.cli.console import Console
from paddock.apps.cli.options import Options

# What a command takes is asked of its own help when a key is pressed: a shell that starts
# need not load every command for it, and a newer Paddock answers for itself.
_ASKING: Final = r"""
_paddock_parts() {
    case "$1" in
@PARTS@
    esac
}
# COMMAND SUB-COMMAND WORD-BEFORE WORD: what may stand there; nothing where any file may.
_paddock_words() {
    local help values
    help="$(paddock "$1" ${2:+"$2"} --help 2>/dev/null)"
    case "$3" in
        --*[!a-z-]*) ;;
        --*)
            values="$(printf '%s\n' "$help" | sed -n "s/^  $3 {\([^}]*\)}.*/\1/p" | tr ',' ' ')"
            if [ -n "$values" ]; then
                printf '%s\n' "$values"
                return
            fi
            if printf '%s\n' "$help" | grep -q "^  $3 [A-Z]"; then
                return
            fi
            ;;
    esac
    case "$4" in
        -*) printf '%s\n' "$help" | sed -n 's/^  \(-., \)\{0,1\}\(--[a-z-]*\).*/\2/p' ;;
        *) printf '%s\n' "$help" | sed -n 's/^  {\([^}]*\)}$/\1/p' | tr ',' ' ' ;;
    esac
}
"""
_BASH: Final = (
    _ASKING
    + r"""_paddock() {
    local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}"
    local command="${COMP_WORDS[1]}" sub="" parts="" words
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "@COMMANDS@" -- "$word"))
        return
    fi
    # bash makes three words of --ledger=ho1m.
    if [ "$word" = "=" ]; then
        word=""
    elif [ "$before" = "=" ]; then
        before="${COMP_WORDS[COMP_CWORD-2]}"
    fi
    parts="$(_paddock_parts "$command")"
    if [ "$COMP_CWORD" -gt 2 ]; then
        case " $parts " in
            *" ${COMP_WORDS[2]} "*) sub="${COMP_WORDS[2]}" ;;
        esac
    fi
    words="$(_paddock_words "$command" "$sub" "$before" "$word")"
    case "$COMP_CWORD $word" in
        "2 -"*) ;;
        "2 "*) words="$words $parts" ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o default -F _paddock paddock
"""
)
_ZSH: Final = (
    "#compdef paddock"
    + _ASKING
    + r"""_paddock() {
    local word="${words[CURRENT]}" before="${words[CURRENT-1]}" sub="" parts=""
    if (( CURRENT == 2 )); then
        compadd -- @COMMANDS@
        return
    fi
    parts="$(_paddock_parts "${words[2]}")"
    if (( CURRENT == 3 )) && [[ "$word" != -* ]]; then
        compadd -- $(_paddock_parts "${words[2]}")
    elif [[ " $parts " == *" ${words[3]} "* ]]; then
        sub="${words[3]}"
    fi
    compadd -- $(_paddock_words "${words[2]}" "$sub" "$before" "$word")
    _files
}
compdef _paddock paddock
"""
)
_FISH: Final = """\
complete -c paddock -n __fish_use_subcommand -f -a "@COMMANDS@"
@PARTS@
complete -c paddock -l json -d "print one JSON value"
complete -c paddock -l plane -r -d "the project or bare plane"
"""
_SHELL_PART: Final = "        {name}) printf '%s\\n' \"{parts}\" ;;"
_FISH_PART: Final = (
    'complete -c paddock -n "__fish_seen_subcommand_from {name}; '
    'and not __fish_seen_subcommand_from {parts}" -f -a "{parts}"'
)
_ROW: Final = {"bash": _SHELL_PART, "zsh": _SHELL_PART, "fish": _FISH_PART}
_SCRIPTS: Final = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


class Completion:
    summary = "Print a completion script for bash, zsh or fish."
    examples = '  eval "$(paddock completion bash)"\n  paddock completion fish | source'

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("shell", choices=sorted(_SCRIPTS))

    def run(self, options: Options, console: Console) -> int:
        from paddock.apps.cli.main import COMMANDS
        from paddock.tools.toolsets import TOOLS

        parts = {name: " ".join(row.parts) for name, row in COMMANDS.items() if row.parts}
        parts["call"] = " ".join(sorted(tool.name for tool in TOOLS))
        form = _ROW[options.shell]
        rows = "\n".join(form.format(name=name, parts=words) for name, words in parts.items())
        script = _SCRIPTS[options.shell]
        script = script.replace("@PARTS@", rows).replace("@COMMANDS@", " ".join(COMMANDS))
        if options.json:
            console.write_json({"shell": options.shell, "script": script})
        else:
            console.print(script)
        return 0


COMMAND = Completion()
