# The session tier explains itself, and its reader reads a turn.
# Run in the root of the plane: sh HO2/tests/session.sh
set -eu
cd "${1:-.}"
for file in README.md supervisor.md events.md turns.py; do
  [ -s "HO2/kernel/$file" ] || {
    echo "session: HO2/kernel/$file is missing or empty" >&2
    exit 1
  }
done
grep -q 'TURN_RECORDED' HO2/kernel/events.md || {
  echo "session: events.md says nothing of TURN_RECORDED" >&2
  exit 1
}

python=$(command -v python3 || true)
# Before 3.9 it would not read this module's types.
if [ -n "$python" ] && "$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))'; then
  found=$(
    "$python" -B HO2/kernel/turns.py - <<'LEDGER'
{"event_type": "SESSION_START", "session_id": "SES-1"}
{"event_type": "TURN_RECORDED", "session_id": "SES-1", "metadata": {"turn": 1, "outcome": "success", "user_message": "hello\u001b[2J"}}
LEDGER
  )
  [ "$found" = 'SES-1                    1  success    hello [2J' ] || {
    echo "session: a recorded turn is read as '$found'" >&2
    exit 1
  }
else
  echo "session: no Python 3.9 here, so the reader of turns was not tried" >&2
fi
echo "session: all there"
