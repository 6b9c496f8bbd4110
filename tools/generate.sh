#!/usr/bin/env bash
# Generates the stubs of every language from proto/ with pinned generators.
#
#   tools/generate.sh [--out FOLDER] [python] [clients]
#
# Without a language all are generated. `python` needs the packages of the `dev` extra in $PYTHON (default: python);
# `clients` (TypeScript and Go) needs npm and go, and installs its generators into generated/typescript/node_modules
# and .tools/bin.
set -euo pipefail
cd "$(dirname "$0")/.."

PROTOC_GEN_GO=v1.36.12
PROTOC_GEN_GO_GRPC=v1.6.2

out=.
languages=()
while (($#)); do
  case $1 in
    --out) out=$2; shift 2 ;;
    python | clients) languages+=("$1"); shift ;;
    *) echo "usage: tools/generate.sh [--out FOLDER] [python] [clients]" >&2; exit 2 ;;
  esac
done
((${#languages[@]})) || languages=(python clients)

python=$(command -v "${PYTHON:-python}") || { echo "no python: activate a virtual environment or set PYTHON" >&2; exit 1; }
PATH="$(dirname "$python"):$PWD/.tools/bin:$PWD/generated/typescript/node_modules/.bin:$PATH"

generate_python() {
  buf generate --template buf.gen.yaml --output "$fresh"
  # protoc-gen-mypy_grpc also describes modules that no service made.
  local stub
  while IFS= read -r stub; do
    [[ -e ${stub%i} ]] || rm "$stub"
  done < <(find "$fresh/generated/python" -name '*_pb2_grpc.pyi')
  touch "$fresh/generated/python/placet/v1/py.typed"
  replace python/placet python/buf
}

generate_clients() {
  install_client_generators
  buf generate --template buf.gen.clients.yaml --output "$fresh"
  replace typescript/placet typescript/google go/placet
}

# Old stubs leave only once new ones stand beside them.
replace() {
  local tree
  for tree in "$@"; do
    mkdir -p "$(dirname "$out/generated/$tree")"
    rm -rf "$out/generated/$tree"
    mv "$fresh/generated/$tree" "$out/generated/$tree"
  done
}

install_client_generators() {
  if ! npm ls --prefix generated/typescript >/dev/null 2>&1; then
    npm ci --prefix generated/typescript --ignore-scripts --no-audit --no-fund >&2
  fi
  local bin=$PWD/.tools/bin
  [[ $("$bin/protoc-gen-go" --version 2>/dev/null) == *" $PROTOC_GEN_GO" ]] ||
    GOBIN=$bin go install "google.golang.org/protobuf/cmd/protoc-gen-go@$PROTOC_GEN_GO"
  [[ $("$bin/protoc-gen-go-grpc" --version 2>/dev/null) == *" ${PROTOC_GEN_GO_GRPC#v}" ]] ||
    GOBIN=$bin go install "google.golang.org/grpc/cmd/protoc-gen-go-grpc@$PROTOC_GEN_GO_GRPC"
}

fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
for language in "${languages[@]}"; do
  "generate_$language"
done
