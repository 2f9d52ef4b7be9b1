# Every spec has a framework that lists it, and every listed spec is there.
# Run in the root of the plane: sh HOT/tests/registries.sh
set -eu
cd "${1:-.}"
status=0
wrong() {
  echo "registries: $1" >&2
  status=1
}

# The files are written with one member a line, so that a line can be looked for.
member() { sed -n 's/^  "'"$2"'": "\([^"]*\)".*/\1/p' "$1"; }

for file in HOT/registries/specs/*.json; do
  spec=$(member "$file" spec_id)
  framework=$(member "$file" framework_id)
  [ "$spec.json" = "${file##*/}" ] || wrong "$file is named after another spec than '$spec'"
  grep -q "^    \"$spec\",\{0,1\}$" "HOT/registries/frameworks/$framework.json" ||
    wrong "$framework does not list $spec"
done

for file in HOT/registries/frameworks/*.json; do
  framework=$(member "$file" framework_id)
  [ "$framework.json" = "${file##*/}" ] || wrong "$file is named after another framework"
  for spec in $(sed -n 's/^    "\([^"]*\)",\{0,1\}$/\1/p' "$file"); do
    [ -f "HOT/registries/specs/$spec.json" ] || wrong "$framework expects $spec, which is not there"
  done
done

[ "$status" -eq 0 ] && echo "registries: every spec and framework resolves"
exit "$status"
