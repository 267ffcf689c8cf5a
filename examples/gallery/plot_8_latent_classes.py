"""
Latent classes of yes/no answers
================================

Ask every handwritten digit 64 questions: is this pixel dark? Which kinds of respondents are there?
"""

# %% The digits that scikit-learn ships; each pixel is a question with two answers. One answer in
# ten is missing.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from odeco.models import LatentClasses

digits = load_digits()
X = (digits.data > 7).astype(float)
X[np.random.default_rng(0).random(X.shape) < 0.1] = np.nan

# %% Ten classes, learnt without the labels. Missing answers need not be filled in. Some pixels are
# never dark, so we state that all questions have two answers.
model = LatentClasses(10, random_state=0).fit(X, categories=2)
print(model.summary())

# %% The probability that each class answers yes to each question: the classes are ways to write a
# digit.
figure, places = plt.subplots(2, 5, figsize=(8, 3.6), layout="constrained")
labels = model.predict(X)
dark = np.array([probabilities[:, 1] for probabilities in model.answer_probabilities_]).T
for number, axes in enumerate(places.ravel()):
    axes.imshow(dark[number].reshape(8, 8), cmap="Blues", vmin=0, vmax=1)
    most = np.bincount(digits.target[labels == number], minlength=10)
    axes.set_title(f"class {number}: {most.max() / most.sum():.0%} are {most.argmax()}", fontsize=9)
    axes.set_axis_off()
