#!/usr/bin/env bash
# Every check that is not a test, by name; without a name all of them, in this order. Used by the justfile and .ci/run.
#
#   tools/check.sh [format] [lint] [types] [imports] [proto] [breaking] [generated] [image]
#
# Needs the `test` extra in $PYTHON (default: python). Checks whose toolchain is missing are skipped and named,
# unless PLACET_REQUIRE_TOOLCHAINS=1.
set -euo pipefail
cd "$(dirname "$0")/.."

python=$(command -v "${PYTHON:-python}") || { echo "no python: activate a virtual environment or set PYTHON" >&2; exit 1; }
export PYTHON=$python
PATH="$(dirname "$python"):$PATH"

check_format() {
  ruff format --check .
  buf format --diff --exit-code proto
  # What a merge leaves where it could not decide.
  ! git grep -nE '^(<<<<<<<|>>>>>>>) '
}

check_lint() { ruff check .; }

# What pyproject.toml names, and the folders that not every checkout has.
check_types() {
  local folder folders=(clients/python server generated/python tests tools)
  for folder in benchmarks examples; do
    [[ ! -d $folder ]] || folders+=("$folder")
  done
  mypy "${folders[@]}"
}

check_imports() { lint-imports --no-logo; }

check_proto() { buf lint; }

# Against the contract before the last change to it. An intended break says so in its commit message, on a line of
# its own that begins with `Contract-break:` and gives the reason.
check_breaking() {
  local base reasons
  if git diff --quiet HEAD -- proto; then
    base=$(git rev-list --first-parent --skip=1 --max-count=1 HEAD -- proto)
  else
    base=$(git rev-parse HEAD)
  fi
  if [[ -z $base ]] || ! git cat-file -e "$base:proto" 2>/dev/null; then
    echo "skipped: no earlier commit holds a contract to compare with"
    return
  fi
  reasons=$(git log --format=%B "$base..HEAD" -- proto | grep '^Contract-break:' || true)
  if [[ -n $reasons ]]; then
    echo "skipped: $reasons"
    return
  fi
  local before
  before=$(mktemp -d)
  # Expanded now: the variable is gone when the trap runs.
  # shellcheck disable=SC2064
  trap "rm -rf '$before'" EXIT
  git archive "$base" proto | tar -x -C "$before"
  cp -r buf.yaml third_party "$before"
  buf breaking --against "$before"
}

check_generated() { tools/check_generated.sh; }

check_image() { hadolint Dockerfile; }

(($#)) || set -- format lint types imports proto breaking generated image
failed=()
for name in "$@"; do
  declare -F "check_$name" >/dev/null || { echo "no check named $name" >&2; exit 2; }
  echo "== $name"
  # A subshell of its own, since `set -e` is off inside the condition of an `if`.
  set +e
  (set -e; "check_$name")
  status=$?
  set -e
  ((status == 0)) || failed+=("$name")
done
if ((${#failed[@]})); then
  echo "failed: ${failed[*]}" >&2
  exit 1
fi
