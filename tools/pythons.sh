#!/usr/bin/env bash
# Runs a part of the tests under every Python that pyproject.toml names and this machine has.
set -euo pipefail

tests=(tests/io tests/test_laws.py tests/test_saving.py tests/models/lda/test_refine.py tests/test_streams.py
    tests/test_report.py tests/test_threads.py src)

for version in 3.11 3.12 3.13 3.14; do
    python=""
    for candidate in "python$version" "$HOME/.pyenv/versions/$version".*/bin/python; do
        # It must really start: pyenv leaves a command on the path for versions that are not switched on.
        if "$candidate" -c "" 2>/dev/null; then
            python=$candidate
            break
        fi
    done
    if [ -z "$python" ]; then
        echo "Python $version is not on this machine: skipped."
        continue
    fi
    echo "Python $version"
    "$python" -m venv ".venv-$version"
    ".venv-$version/bin/pip" install -q --upgrade 'pip>=25.1'
    ".venv-$version/bin/pip" install -q -c constraints.txt -e '.[all]' --group test
    ".venv-$version/bin/python" -m pytest -q -n auto -m "not slow and not long" "${tests[@]}"
done
