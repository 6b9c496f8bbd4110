#!/usr/bin/env bash
# Writes requirements/*.txt: every package by version and hash, for any platform, without naming a registry.
#
#   tools/pin_requirements.sh [--upgrade]
#
# Needs uv (extra `dev`). The image installs build.txt and server.txt; development and CI install dev.txt.
set -euo pipefail
cd "$(dirname "$0")/.."

pin() {
  local name=$1
  shift
  uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
    --no-emit-index-url --no-emit-find-links --output-file "requirements/$name.txt" "$@"
}

pin dev --all-extras pyproject.toml "$@"
pin server --extra server --extra embedded --extra agents --constraint requirements/dev.txt pyproject.toml "$@"
echo "hatchling>=1.27,<2" | pin build --constraint requirements/dev.txt - "$@"
