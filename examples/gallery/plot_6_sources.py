"""
Mixed images, unmixed
=====================

Four pictures are added in four different proportions. :class:`odeco.models.TensorICA` gets only the
sums, pixel by pixel, and finds the pictures: they are the independent sources behind the sums.
"""

# %% Two photographs that scikit-learn ships, a height map that Matplotlib ships, and handwritten
# digits. The pixels of a picture are one source; their positions are not used.
import matplotlib.pyplot as plt
import numpy as np
from matplotlib import cbook
from sklearn.datasets import load_digits, load_sample_image

from odeco.models import TensorICA

size = 256
digits = load_digits().images[: (size // 8) ** 2].reshape(size // 8, size // 8, 8, 8).swapaxes(1, 2)
heights = np.load(cbook.get_sample_data("jacksboro_fault_dem.npz", asfileobj=False))["elevation"]
pictures = {
    "temple": load_sample_image("china.jpg")[100 : 100 + size, 200 : 200 + size].mean(axis=2),
    "flower": load_sample_image("flower.jpg")[80 : 80 + size, 200 : 200 + size].mean(axis=2),
    "heights": heights[:size, :size].astype(float),
    "digits": digits.reshape(size, size),
}
sources = np.column_stack([picture.ravel() for picture in pictures.values()])
sources = (sources - sources.mean(axis=0)) / sources.std(axis=0)

# %%
# The model gets only the mixtures.
mixing = np.random.default_rng(1).uniform(0.3, 1, size=(4, 4)) + 0.4 * np.eye(4)
rows = sources @ mixing.T
model = TensorICA(random_state=0).fit(rows)
found = model.transform(rows)
print(model.summary())

# %% The mixtures (top) and the sources found (bottom), each with the picture that it is most
# correlated with.
correlation = np.corrcoef(found.T, sources.T)[:4, 4:]
nearest = np.abs(correlation).argmax(axis=1)
figure, axes = plt.subplots(2, 4, figsize=(10, 5.2), layout="constrained")
for index in range(4):
    axes[0, index].imshow(rows[:, index].reshape(size, size), cmap="gray")
    axes[0, index].set_title(f"mixture {index}")
    sign = np.sign(correlation[index, nearest[index]])
    axes[1, index].imshow((sign * found[:, index]).reshape(size, size), cmap="gray")
    name = list(pictures)[nearest[index]]
    axes[1, index].set_title(f"{name}, correlation {abs(correlation[index, nearest[index]]):.3f}")
for each in axes.flat:
    each.axis("off")

# %%
# The same in one pass: rows arrive in batches and are not stored.
stream = TensorICA(random_state=0)
for batch in np.array_split(rows, 13):
    stream.partial_fit(batch)
again = np.abs(np.corrcoef(stream.transform(rows).T, sources.T)[:4, 4:]).max(axis=0)
print("correlation with the pictures, in one pass:", np.round(again, 3))

# %%
# The plot of a model: the mixing matrix, and the density of each source.
model.plot()
