# The three contracts of the built-in orders are there, each under its own id.
# Run in the root of the plane: sh HO1/tests/contracts.sh
set -eu
cd "${1:-.}"
for name in PRC-CLASSIFY-001 PRC-SYNTHESIZE-001 PRC-EXECUTE-001; do
  file=HO1/contracts/$name.json
  grep -q "\"contract_id\": \"$name\"" "$file" || {
    echo "contracts: $file is no contract $name" >&2
    exit 1
  }
  grep -q '{{' "$file" || {
    echo "contracts: the template of $name takes nothing in" >&2
    exit 1
  }
done
echo "contracts: all there"
