# The execution tier explains itself, and every outcome that it names has a row.
# Run in the root of the plane: sh HO1/tests/execution.sh
set -eu
cd "${1:-.}"
for word in truncated refused stuck turn_limit_exceeded; do
  grep -q "\`$word\`" HO1/kernel/executor.md || {
    echo "execution: executor.md says nothing of $word" >&2
    exit 1
  }
done
[ -s HO1/kernel/README.md ]
echo "execution: all there"
