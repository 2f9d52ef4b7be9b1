#!/usr/bin/env bash
# The checks of the default policy as people write them by hand: bash, jq, realpath. For
# bench/hook.py alone: it writes a line to a log, and no ledger, and it fails open. Of a
# command it sees the words after a redirection or a program that writes, and no more.
set -u
jq=${JQ:-jq}
input=$(cat)
tool=$(printf '%s' "$input" | "$jq" -r '.tool_name // empty')
root=$(realpath -m -- "${CLAUDE_PROJECT_DIR:-.}")

answer() {
  printf '%s %s %s %s\n' "$1" "$tool" "$real" "$2" >>"$HOOK_LOG"
  "$jq" -nc --arg decision "$1" --arg reason "$2" \
    '{hookSpecificOutput: {hookEventName: "PreToolUse", permissionDecision: $decision, permissionDecisionReason: $reason}}'
  exit 0
}

check() {
  real=$(realpath -m -- "$1")
  case "$real" in "$root"/*) relative=${real#"$root"/} ;; *) answer deny "Path outside project boundary: $real" ;; esac
  lower=${relative,,}
  case "/$lower/" in
  */.git/* | */.env* | *.key/* | *.pem/*) answer deny "Protected path: $relative cannot be modified via $tool." ;;
  */node_modules/* | */package-lock.json/* | */yarn.lock/*) answer deny "Protected path: $relative cannot be modified via $tool." ;;
  */paddock.toml/* | */paddock.json/*) answer deny "Protected path: $relative cannot be modified via $tool." ;;
  esac
  case "$relative" in
  docs/* | agent_sandbox/* | tests/*) ;;
  src/* | plugins/*/agents/*.md | plugins/*/commands/*.md | plugins/*/skills/* | .claude-plugin/*)
    answer warn "Writing to production path: $relative. Ensure this is intentional implementation work." ;;
  esac
  printf 'allow %s %s\n' "$tool" "$real" >>"$HOOK_LOG"
}

case "$tool" in
Write | Edit | MultiEdit | NotebookEdit)
  check "$(printf '%s' "$input" | "$jq" -r '.tool_input.file_path // .tool_input.notebook_path // empty')"
  ;;
Bash)
  command=$(printf '%s' "$input" | "$jq" -r '.tool_input.command // empty')
  read -ra words <<<"$command"
  writes=
  for word in "${words[@]}"; do
    case "$word" in
    '>' | '>>' | tee | rm | cp | mv | touch | mkdir) writes=1 ;;
    '|' | ';' | '&&' | '||') writes= ;;
    '>>'*) check "${word#>>}" ;;
    '>'*) check "${word#>}" ;;
    -*) ;;
    *) [ -z "$writes" ] || check "$word" ;;
    esac
  done
  ;;
esac
exit 0
