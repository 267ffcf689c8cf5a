"""Settings of the tests, and the sample of slow ones that `make test` runs."""

from __future__ import annotations

import datetime
import sys
import zlib
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

# Shared machines pause: a slow example is no failure. The examples are the same from run to run.
settings.register_profile("odeco", deadline=None, derandomize=True, max_examples=25)
settings.load_profile("odeco")

#: One slow test of this number runs without `--everything`; tomorrow it is another one.
_ONE_IN = 8


def pytest_addoption(parser):
    parser.addoption(
        "--everything", action="store_true", help="run all slow tests, not the sample of today"
    )


def pytest_collection_modifyitems(config, items):
    """Without `--everything`, keep one slow test in `_ONE_IN`: a sample that changes from day to
    day.
    """
    if config.getoption("--everything") or config.args != config.getini("testpaths"):
        return  # whoever names a file wants all of it
    today = datetime.datetime.now(tz=datetime.UTC).toordinal()
    slow = [item for item in items if item.get_closest_marker("slow")]
    left_out = {item for item in slow if (zlib.crc32(item.nodeid.encode()) + today) % _ONE_IN}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def client():
    """A Dask cluster of two worker processes, for all tests of a session."""
    pytest.importorskip("dask")
    pytest.importorskip("distributed")
    from cluster_parts import local_cluster

    with local_cluster(2, allowed_failures=20) as made:
        yield made
