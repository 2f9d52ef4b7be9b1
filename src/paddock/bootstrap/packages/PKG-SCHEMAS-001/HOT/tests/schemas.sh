# Every schema is there, is JSON, and names its draft.
# Run in the root of the plane: sh HOT/tests/schemas.sh
set -eu
cd "${1:-.}"
status=0
wrong() {
  echo "schemas: $1" >&2
  status=1
}

for name in approval framework manifest operator_key prompt_contract receipt signature spec; do
  file=HOT/schemas/$name.schema.json
  if [ ! -f "$file" ]; then
    wrong "$file is missing"
    continue
  fi
  grep -q '"\$schema": "https://json-schema.org/draft/2020-12/schema"' "$file" ||
    wrong "$file names no draft"
  if command -v python3 >/dev/null 2>&1; then
    python3 -c 'import json, sys; json.load(open(sys.argv[1], encoding="utf-8"))' "$file" ||
      wrong "$file is no JSON"
  fi
done

[ "$status" -eq 0 ] && echo "schemas: all there"
exit "$status"
