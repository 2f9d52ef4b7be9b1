# The three tiers stand, each package is whole, and each one's identity is its receipt's.
# Run in the root of the plane: sh HOT/tests/plane.sh
set -eu
cd "${1:-.}"
status=0
wrong() {
  echo "plane: $1" >&2
  status=1
}

for directory in HOT/config HOT/kernel HOT/schemas HOT/registries HOT/installed HO2/kernel HO1/kernel; do
  [ -d "$directory" ] || wrong "$directory is missing"
done
for file in HOT/config/admin_config.json HOT/kernel/README.md HOT/kernel/gates.md; do
  [ -s "$file" ] || wrong "$file is missing or empty"
done

packages=0
for directory in HOT/installed/*/; do
  name=${directory%/}
  name=${name##*/}
  packages=$((packages + 1))
  if [ ! -f "${directory}manifest.json" ]; then
    wrong "$name has no manifest"
    continue
  fi
  # While a package is being installed, its receipt is not there yet: it is written last.
  [ -f "${directory}receipt.json" ] || continue
  digest=sha256:$(sha256sum "${directory}manifest.json" | cut -d ' ' -f 1)
  grep -q "\"digest\": \"$digest\"" "${directory}receipt.json" ||
    wrong "the receipt of $name is of another package than its manifest"
done
[ "$packages" -gt 0 ] || wrong "no package is installed"

[ "$status" -eq 0 ] && echo "plane: $packages packages, each with the identity of its receipt"
exit "$status"
