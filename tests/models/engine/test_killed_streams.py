"""A process that learns in one pass is killed from outside; another goes on from its files, to the
same bits.
"""

import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from odeco._util.files import load_arrays, read_contents
from odeco.models import LatentClasses, TensorHMM, TensorICA, TensorMixture

N_BATCHES, BATCH = 60, 2500
MODELS = {
    "mixture": lambda: TensorMixture(2, random_state=0),
    "hmm": lambda: TensorHMM(2, n_symbols=6, max_iter=3, random_state=0),
    "ica": lambda: TensorICA(random_state=0),
    "classes": lambda: LatentClasses(2, random_state=0),
}
#: The process feeds batch after batch to all models, and saves all of them after each.
CHILD = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_killed_streams import MODELS, N_BATCHES, fed
models = {name: make() for name, make in MODELS.items()}
for number in range(N_BATCHES):
    for name, model in models.items():
        fed(name, model, number).save(Path(sys.argv[2]) / f"{name}.npz")
"""


def batch(name, number):
    rng = np.random.default_rng([3, number])
    groups = np.repeat(rng.integers(2, size=BATCH // 5), 5)
    if name == "hmm":
        return rng.integers(4, size=BATCH) + 2 * groups
    if name == "classes":
        return (rng.random((BATCH, 4)) < 0.2 + 0.6 * groups[:, None]).astype(int)
    if name == "ica":
        return np.column_stack([rng.uniform(-1, 1, BATCH), rng.exponential(size=BATCH)]) @ np.array(
            [[1, 2], [1, 1]]
        )
    return rng.standard_normal((BATCH, 2)) + 6 * groups[:, None]


def fed(name, model, number):
    return model.partial_fit(batch(name, number), **({"goes_on": True} if name == "hmm" else {}))


def _n_rows(path):
    arrays = load_arrays(path, read_contents(path).kind)[1]
    return int(arrays["stream.n_seen"])


@pytest.mark.slow
def test_streams_of_a_killed_process_go_on_to_the_same_bits(tmp_path, request):
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(request.path.parent), str(tmp_path)])
    try:
        files = {name: tmp_path / f"{name}.npz" for name in MODELS}
        while not all(path.exists() for path in files.values()):
            assert child.poll() is None
            time.sleep(0.01)
        time.sleep(random.uniform(0, 1.5))
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    for name, path in files.items():
        alone = MODELS[name]()
        for number in range(N_BATCHES):
            fed(name, alone, number)
        resumed = type(alone).load(path)
        for number in range(_n_rows(path) // BATCH, N_BATCHES):
            fed(name, resumed, number)
        files = [tmp_path / f"{name} {number}.npz" for number in range(2)]
        alone.save(files[0])
        resumed.save(files[1])
        expected, found = (
            {k: v.tobytes() for k, v in load_arrays(file, alone._KIND)[1].items()} for file in files
        )
        assert found == expected
