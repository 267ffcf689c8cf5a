"""The fixture that runs a test over every kind of source."""

from __future__ import annotations

import pytest
from kinds import KINDS


@pytest.fixture(params=KINDS, ids=[name for name, _, _ in KINDS])
def held(request, tmp_path):
    """Some data as a user may hold them, and their rows."""
    _, make, rows = request.param
    return make(tmp_path, rows), rows
