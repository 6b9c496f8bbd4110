# `just check` is what must hold before a change is handed in. Without just: the commands are plain.

set shell := ["bash", "-euo", "pipefail", "-c"]

default:
    @just --list

# Install everything, editable, into the active virtual environment.
setup:
    python -m pip install -e '.[dev]'

# Format code and protos.
format:
    ruff format .
    ruff check --fix .
    buf format -w proto

# Format, lint, types, imports, contract, drift, image, tests.
check:
    tools/check.sh
    python -m pytest

# One check, or all that are not tests: just lint types imports
lint *names:
    tools/check.sh {{ names }}

# Tests; arguments go to pytest.
test *arguments:
    python -m pytest {{ arguments }}

# Stubs of all languages, or of `python` or `clients` only.
generate *languages:
    tools/generate.sh {{ languages }}

# Pin requirements/*.txt; `--upgrade` moves them.
pin *options:
    tools/pin_requirements.sh {{ options }}
