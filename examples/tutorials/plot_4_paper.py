"""
The paper's algorithms by name
==============================

For researchers: Algorithms 1, 2 and 3 of *Online and Differentially-Private Tensor Decomposition*
(Wang and Anandkumar 2016, `arXiv:1606.06237 <https://arxiv.org/abs/1606.06237>`_) in the letters of
the paper, beside what the library does by default. All claims of the paper are checked by ``python
-m reproduction all``.
"""

# %% **Algorithm 1**, the robust tensor power method: k components, L restarts for each, R power
# iterations. The tensor has orthogonal components and symmetric noise.
import matplotlib.pyplot as plt
import numpy as np

import odeco
from odeco import paper
from odeco.datasets import gaussian_noise, planted_orthogonal

d, k = 30, 3
truth = planted_orthogonal(d, k, rng=0)
noise = gaussian_noise(d, rng=1)
T = truth.to_dense() + 0.05 / odeco.operator_norm(noise, rng=0) * noise.entries
found = paper.robust_tensor_power_method(T, k, L=30, R=20, rng=0)
print("Algorithm 1, cosines with the truth:", odeco.match(found, truth).cosines.round(5))

# %%
# How much noise does it tolerate? The worst cosine over noise of growing operator norm.
norms = np.geomspace(0.02, 1.5, 8)
unit = noise.entries / odeco.operator_norm(noise, rng=0)
worst = [
    odeco.match(paper.robust_tensor_power_method(noisy, k, L=30, R=20, rng=0), truth).cosines.min()
    for noisy in (truth.to_dense() + size * unit for size in norms)
]  # fmt: skip
figure, axes = plt.subplots(figsize=(5.5, 3), layout="constrained")
axes.semilogx(norms, worst, "o-")
axes.set(
    xlabel="operator norm of the noise (smallest weight: 1)", ylabel="worst cosine", ylim=(0, 1.05)
)

# %% **Algorithm 2** reads a stream once, n fresh rows for each iteration, and never forms the
# moment. Beside it is the library's method, which uses each row more than once.
rng = np.random.default_rng(0)
mixing = np.linalg.qr(rng.normal(size=(d, k)))[0]
rows = (rng.exponential(size=(60_000, k)) - 1) @ mixing.T + 0.3 * rng.normal(size=(60_000, d))
sources = odeco.Components(
    np.full(k, 2.0), mixing
)  # an exponential variable has the third central moment 2
online = paper.online_tensor_power_method(rows, k, L=20, R=10, n=2_000, rng=0)
ours = odeco.decompose_stream(rows, k, rng=0).components
for name, each in {"Algorithm 2": online, "decompose_stream": ours}.items():
    angle = np.arccos(min(1.0, odeco.match(each, sources).cosines.min()))
    print(f"{name:<17} worst angle {angle:.4f} rad")

# %% **Algorithm 3** is private in the entries of the tensor. Its noise is large: the weights must
# be, too.
strong = odeco.Components(np.array([4000.0, 3000.0, 2000.0]), truth.vectors)
private = paper.private_tensor_power_method(
    strong.to_dense(), k, L=10, R=8, epsilon=1.0, delta=1e-6, rng=0
)
print("Algorithm 3, cosines with the truth:", odeco.match(private, strong).cosines.round(2))

# %% Where the library differs from the paper, and which claims hold, is on :doc:`the page of the
# paper </paper>`.
