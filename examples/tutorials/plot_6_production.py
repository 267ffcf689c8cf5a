"""
A stream in production
======================

Rows arrive day and night, the process is restarted now and then, and the sources change. This
tutorial follows a stream, survives a crash bit-identically, and notices drift.
"""

# %% Rows mix four skewed sources. Any number of rows can be pushed at a time; the result depends on
# the rows alone.
import matplotlib.pyplot as plt
import numpy as np

import odeco

rng = np.random.default_rng(0)
d, k = 40, 4
directions = np.linalg.qr(rng.normal(size=(d, 2 * k)))[0]


def arriving(mixing, n_rows):
    return (rng.exponential(size=(n_rows, k)) - 1) @ mixing.T + 0.3 * rng.standard_normal(
        (n_rows, d)
    )


batches = [arriving(directions[:, :k], int(size)) for size in rng.integers(500, 3000, size=20)]
online = odeco.OnlineDecomposer(k, rng=0)
for batch in batches[:12]:
    online.partial_fit(batch)
online.save("run.ckpt")  # atomic: there is always a complete file
print(online.result())

# %% **A crash.** The process that went on is lost. Another one loads the file and continues; it
# ends with the same bits as one that was never interrupted.
for batch in batches[12:]:
    online.partial_fit(batch)
again = odeco.OnlineDecomposer.load("run.ckpt")
for batch in batches[12:]:
    again.partial_fit(batch)
print("bit-identical:", np.array_equal(online.result().vectors, again.result().vectors))

# %%
# **A bad row** is an error that names it, and changes nothing.
bad = batches[0].copy()
bad[7, 3] = np.nan
try:
    again.partial_fit(bad)
except ValueError as error:
    print(error)

# %% **Drift.** From batch 10 on the directions rotate. With ``forgetting`` below 1 the past fades,
# and the result follows.
followers = {
    "nothing is forgotten": odeco.OnlineDecomposer(k, method="core", rng=0),
    "forgetting = 0.8": odeco.OnlineDecomposer(
        k, method="core", forgetting=0.8, batch_size=2_000, rng=0
    ),
}
angles = {name: [] for name in followers}
for step in range(40):
    turn = max(0, step - 10) / 30 * np.pi / 3
    mixing = np.cos(turn) * directions[:, :k] + np.sin(turn) * directions[:, k:]
    rows = arriving(mixing, 2_000)
    for name, follower in followers.items():
        found = follower.partial_fit(rows).result().components
        cosine = odeco.match(found, odeco.Components(np.ones(k), mixing)).cosines.min()
        angles[name].append(np.degrees(np.arccos(min(1.0, cosine))))
figure, axes = plt.subplots(figsize=(6.5, 3), layout="constrained")
for name, values in angles.items():
    axes.plot(values, label=name)
axes.set(xlabel="batch", ylabel="worst angle, degrees")
axes.legend()

# %%
# Sources that lie on a cluster, in files or on a queue: :doc:`/streams` and :doc:`/howto/cluster`.
