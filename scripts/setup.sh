#!/bin/sh
# Sets up the project in its own folder: .venv with the locked packages, the project itself, the model files.
# Usage: scripts/setup.sh run|dev. Does nothing twice, and says so: a stamp in .venv says what is done.
set -eu
cd "$(dirname "$0")/.."
kind=${1:?run or dev}
lock=requirements/$kind.lock

say() { printf '%s\n' "setup: $*" >&2; }
fail() {
    say "FAILED: $*"
    exit 1
}

# pip asks again where a connection fails, but not where a transfer breaks off or arrives damaged.
twice() {
    "$@" && return
    say "that failed; once more, in case the network is why"
    "$@"
}

find_python() {
    for candidate in ${PYTHON:-} python3 python3.13 python3.12 python3.11; do
        if command -v "$candidate" >/dev/null 2>&1 &&
            "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            printf '%s' "$candidate"
            return
        fi
    done
    fail "no Python 3.11 or later on the PATH. Install one (Debian: apt-get install python3 python3-venv)," \
        "or name it: PYTHON=/path/to/python3 make setup"
}

if [ ! -x .venv/bin/python ] || ! .venv/bin/python -c 'import pip' 2>/dev/null; then
    python=$(find_python)
    [ -n "$python" ] || exit 1
    say "1/4 a virtual environment in .venv with $("$python" --version)"
    "$python" -m venv --clear .venv ||
        fail "the virtual environment can't be made. On Debian: apt-get install python3-venv"
fi

stamp=.venv/.$kind-$(cat "$lock" pyproject.toml scripts/setup.sh | cksum | tr -d ' ')
if [ ! -e "$stamp" ]; then
    say "2/4 the locked packages of $lock"
    twice .venv/bin/python -m pip install --disable-pip-version-check --require-hashes -r "$lock" ||
        fail "a package of $lock can't be fetched or installed. pip said why above;" \
            "check the network and pip's index settings, then run it again"
    say "3/4 the project itself"
    .venv/bin/python -m pip install --disable-pip-version-check --quiet --no-deps --no-build-isolation -e . ||
        fail "the project can't be installed. pip said why above"
fi
models=.venv/share/romanesco/models
if [ ! -e "$stamp" ] || [ ! -e "$models/SmolLM2-135M-Instruct.Q4_1.gguf" ] ||
    [ ! -e "$models/l2_supercat_256.safetensors" ] || [ ! -e "$models/l2_supercat_tokenizer_config.json" ]; then
    say "4/4 the embedded model and the embedder's table (about 110 MB, once)"
    .venv/bin/python -m romanesco.models._fetch --into "$models" ||
        fail "the model files can't be fetched. The reason stands above; run it again when it is mended"
    .venv/bin/python -c 'import xllamacpp' ||
        fail "the embedded model's engine can't be loaded. If libgomp.so.1 is what is missing:" \
            "apt-get install libgomp1"
    rm -f .venv/."$kind"-*
    touch "$stamp"
    say "done"
else
    say "nothing to do"
fi
