"""How long odeco takes to start: imports, the command, and the first fit of topics.

    python benchmarks/startup.py

Every row is a process of its own, and the figure the median of its CPU seconds (of all its threads)
over `--repeats` runs. Imports are also given beyond NumPy's own. The first fit runs with an empty
cache of compiled kernels, which the second fit, in another process, then finds.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile

IMPORTS = {
    "import numpy": "import numpy",
    "import odeco": "import numpy, odeco",
    "odeco.decompose (first use)": "import numpy, odeco; odeco.decompose",
    "every name of dir(odeco)": (
        "import numpy, odeco; [getattr(odeco, name) for name in dir(odeco)]"
    ),
    "import scikit-learn's base classes": "import numpy, sklearn.base, sklearn.utils.validation",
    "odeco.models.TensorMixture (first use)": "import numpy, odeco; odeco.models.TensorMixture",
    "odeco.models.TensorLDA (first use)": "import numpy, odeco; odeco.models.TensorLDA",
}
COMMANDS = (
    "--version",
    "--help",
    "decompose --help",
    "learn mixture --help",
    "learn topics --help",
)
FIT = """
import numpy as np
from odeco.models import TensorLDA

rng = np.random.default_rng(0)
topics = rng.dirichlet(np.full(200, 0.05), 5)
counts = np.array([rng.multinomial(60, rng.dirichlet(np.full(5, 0.2)) @ topics) for _ in range(1000)])
TensorLDA(5, random_state=0).fit(counts)
"""


def cpu_seconds(*arguments: str, cache: str = "") -> float:
    """Run Python with these arguments, and return the CPU seconds of the process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = dict(
        os.environ, OPENBLAS_NUM_THREADS="1", **({"NUMBA_CACHE_DIR": cache} if cache else {})
    )
    subprocess.run(
        [sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, env=environment
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats

    def median(*arguments: str) -> float:
        return statistics.median(cpu_seconds(*arguments) for _ in range(repeats))

    print(f"{'what':<42}{'CPU s':>8}{'beyond NumPy':>14}")
    alone = median("-c", IMPORTS["import numpy"])
    for what, code in IMPORTS.items():
        seconds = median("-c", code)
        print(f"{what:<42}{seconds:>8.3f}{seconds - alone:>14.3f}")
    for command in COMMANDS:
        print(f"{'odeco ' + command:<42}{median('-m', 'odeco', *command.split()):>8.3f}")
    with tempfile.TemporaryDirectory() as cache:
        for what in ("first fit of topics, nothing compiled", "the same in the next process"):
            print(f"{what:<42}{cpu_seconds('-c', FIT, cache=cache):>8.3f}")


if __name__ == "__main__":
    main()
