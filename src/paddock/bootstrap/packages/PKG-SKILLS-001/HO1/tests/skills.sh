# Every skill begins with its own name and says when to read it.
# Run in the root of the plane: sh HO1/tests/skills.sh
set -eu
cd "${1:-.}"
status=0
count=0
for file in HO1/skills/*/SKILL.md; do
  directory=${file%/SKILL.md}
  count=$((count + 1))
  [ "$(sed -n 1p "$file")" = "---" ] &&
    [ "$(sed -n 2p "$file")" = "name: ${directory##*/}" ] &&
    sed -n 3p "$file" | grep -q '^description: .' || {
    echo "skills: $file does not begin with its name and a description" >&2
    status=1
  }
done
[ "$count" -gt 0 ] && [ "$status" -eq 0 ] && echo "skills: $count"
exit "$status"
