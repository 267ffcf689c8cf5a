"""
A stream of rows, and a distribution that drifts
================================================

Skewed sources are mixed into rows of 60 numbers. An :class:`odeco.OnlineDecomposer` finds the
mixing vectors from the first rows, refines them with all that follow, and reports their standard
errors. Then the sources rotate, and a decomposer with forgetting tracks them.
"""

# %%
# Rows: four skewed sources along orthonormal directions, and noise.
import matplotlib.pyplot as plt
import numpy as np

import odeco

generator = np.random.default_rng(0)
dimension, k, batch = 60, 4, 2_000
directions = np.linalg.qr(generator.standard_normal((dimension, 2 * k)))[0]
strengths = np.linspace(1.6, 1.0, k)


def rows(mixing, n_rows):
    sources = (generator.exponential(size=(n_rows, k)) - 1) * strengths
    return sources @ mixing.T + 0.3 * generator.standard_normal((n_rows, dimension))


def truth(mixing):
    # An exponential variable has the third central moment 2.
    return odeco.Components(2 * strengths**3, mixing)


# %% Push 60 batches. For each component, the true angle (dots) stays near the reported standard
# error (lines), and both fall as one over the square root of the number of rows.
first = truth(directions[:, :k])
online = odeco.OnlineDecomposer(k, method="core", rng=0)
seen, angles, reported = [], [], []
for _ in range(60):
    online.partial_fit(rows(first.vectors, batch))
    result = online.result()
    matched = odeco.match(result.components, first)
    seen.append(online.n_rows)
    angles.append(np.arccos(np.minimum(1, matched.cosines)))
    reported.append(result.angle_errors[matched.found_index])

figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
for column in range(k):
    axes.loglog(
        seen, np.array(angles)[:, column], ".", color=f"C{column}", label=f"component {column}"
    )
    axes.loglog(seen, np.array(reported)[:, column], "-", color=f"C{column}", alpha=0.6)
axes.set(
    xlabel="rows",
    ylabel="angle, rad",
    title="true error (dots) and reported standard error (lines)",
)
axes.legend()

# %% Now the directions rotate slowly. One decomposer averages over all batches, the other forgets
# old ones.
kinds = {"no forgetting": {}, "forgetting = 0.8": {"forgetting": 0.8, "batch_size": batch}}
followers = {
    name: odeco.OnlineDecomposer(k, method="core", rng=0, **kind) for name, kind in kinds.items()
}
history = {name: [] for name in kinds}
for step in range(50):
    turn = 0.0 if step < 10 else (step - 10) / 40 * np.pi / 3
    now = truth(np.cos(turn) * directions[:, :k] + np.sin(turn) * directions[:, k:])
    arriving = rows(now.vectors, batch)
    for name, follower in followers.items():
        follower.partial_fit(arriving)
        worst = odeco.match(follower.result().components, now).cosines.min()
        history[name].append((step, np.degrees(np.arccos(min(1.0, worst)))))

figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
for name, points in history.items():
    axes.plot(*np.array(points).T, label=name)
axes.set(
    xlabel="batch",
    ylabel="worst angle, degrees",
    title="Sources rotate from batch 10 on, by 60 degrees in all",
)
axes.legend()
