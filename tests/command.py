"""The command ``odeco``, run within this process: what it prints and its exit code, without
starting Python again.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import warnings
from pathlib import Path
from unittest import mock

from odeco.cli.app import run as odeco_command


def run_here(
    *arguments: object, cwd: Path, text: str | None = None, **environment: str
) -> subprocess.CompletedProcess:
    """Run the command in a folder as a process of its own would, and return what it did.

    Warnings are shown as in a fresh process, where pytest's filters are not. What stands for the
    file of an output cannot be a descriptor: tests of signals, pipes and threads start the
    executable.
    """
    words = [str(argument) for argument in arguments]
    stdin = io.TextIOWrapper(io.BytesIO((text or "").encode()), encoding="utf-8")
    stdout, stderr = (
        io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2)
    )
    with (
        contextlib.chdir(cwd),
        mock.patch.dict(os.environ, environment),
        mock.patch.object(sys, "argv", ["odeco", *words]),
        mock.patch.object(sys, "stdin", stdin),
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
        warnings.catch_warnings(),
    ):
        warnings.resetwarnings()
        warnings.simplefilter("ignore", DeprecationWarning)
        code = odeco_command(words)
    out, err = (stream.buffer.getvalue().decode() for stream in (stdout, stderr))
    return subprocess.CompletedProcess(words, code, out, err)
