#!/bin/sh
# Writes requirements/*.lock anew from pyproject.toml. Needs `uv` on the PATH; nothing else in the project does.
set -eu
cd "$(dirname "$0")/.."
lock() {
    out=$1
    shift
    uv pip compile pyproject.toml "$@" --generate-hashes --no-emit-index-url --no-header --universal \
        --python-version 3.11 --quiet --output-file "requirements/$out"
}
lock run.lock --extra local --group build
lock dev.lock --extra local --group dev
