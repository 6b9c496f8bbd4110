#!/usr/bin/env bash
# Fails when the committed stubs are not what the protos generate today.
# Languages whose toolchain is missing are skipped and named, unless PLACET_REQUIRE_TOOLCHAINS=1.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

languages=(python)
compared=(python/placet python/buf)
if [[ ${PLACET_REQUIRE_TOOLCHAINS:-} == 1 ]] || { command -v go && command -v npm; } >/dev/null; then
  languages+=(clients)
  compared+=(typescript/placet typescript/google go/placet)
else
  echo "skipped: the TypeScript and Go stubs, since go or npm is missing"
fi

tools/generate.sh --out "$folder" "${languages[@]}"
status=0
for tree in "${compared[@]}"; do
  diff --recursive --brief --exclude=__pycache__ "generated/$tree" "$folder/generated/$tree" || status=1
done
if ((status)); then
  echo "generated code differs from the protos: run tools/generate.sh and commit the result" >&2
fi
exit "$status"
