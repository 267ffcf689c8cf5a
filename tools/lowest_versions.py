"""Print the lowest version that pyproject.toml allows of every package it names, as constraints for
pip.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path


def lowest_versions(pyproject: Path) -> list[str]:
    """Return ``name==version`` for every requirement ``name>=version``; constraints have no
    extras.
    """
    content = tomllib.loads(pyproject.read_text(encoding="utf-8"))
    project = content["project"]
    extras = [*project["optional-dependencies"].values(), *content["dependency-groups"].values()]
    groups = [project["dependencies"], *extras]
    return sorted(
        {
            re.sub(r"\[.*\]", "", each).replace(">=", "==")
            for group in groups
            for each in group
            if ">=" in each
        }
    )


if __name__ == "__main__":
    sys.stdout.write(
        "\n".join(lowest_versions(Path(__file__).parents[1] / "pyproject.toml")) + "\n"
    )
