"""Memory does not grow with the file that is read."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import numpy as np
import pytest

READ_AND_MEASURE = """
import sys, numpy, psutil
from odeco.io import as_source
process = psutil.Process()
before = peak = process.memory_info().rss
data = numpy.load(sys.argv[1], mmap_mode="r") if sys.argv[2] == "map" else sys.argv[1]
n_rows = 0
for block in as_source(data):
    n_rows += len(block)
    peak = max(peak, process.memory_info().rss)
print(n_rows, peak - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("order", "how"), [("C", "path"), ("F", "path"), ("C", "map")])
def test_memory_does_not_grow_with_the_file(tmp_path, order, how):
    pytest.importorskip("psutil")
    if how == "map" and not hasattr(__import__("mmap"), "MADV_DONTNEED"):
        pytest.skip("pages cannot be given back here")
    path = tmp_path / "rows.npy"
    # 300 MB of zeros that take no room on the disk.
    np.lib.format.open_memmap(path, "w+", np.float32, (75_000, 1000), fortran_order=order == "F").flush()
    command = [sys.executable, "-c", textwrap.dedent(READ_AND_MEASURE), str(path), how]
    n_rows, growth = map(int, subprocess.run(command, check=True, capture_output=True).stdout.split())
    assert n_rows == 75_000
    # Two stretches of 16 MB; the rest is room for the allocator.
    assert growth < 60e6
