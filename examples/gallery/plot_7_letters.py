"""
Hidden states of letters
========================

A hidden Markov model reads text letter by letter and knows nothing about language. What do its
states mean?
"""

# %%
# Letters of the documentation of Python's standard library; everything else is a blank.
from itertools import islice

import matplotlib.pyplot as plt
import numpy as np

from odeco.datasets import python_documentation
from odeco.models import TensorHMM

text = " ".join(document.text.lower() for document in islice(python_documentation(), 1500))
letters = np.frombuffer(text.encode("ascii", "ignore"), np.uint8).astype(int) - ord("a") + 1
letters[(letters < 1) | (letters > 26)] = 0
letters = letters[~((letters == 0) & (np.append(1, letters[:-1]) == 0))][:100_000]
alphabet = np.array(list("_abcdefghijklmnopqrstuvwxyz"))
print("".join(alphabet[letters[:60]]))

# %%
# Three states, from the moments of three consecutive letters and a few Baum-Welch iterations.
model = TensorHMM(3, random_state=0).fit(letters)
for state, probabilities in enumerate(model.emissionprob_):
    print(f"state {state}:", " ".join(alphabet[probabilities.argsort()[::-1][:8]]))

# %%
# The letters of each state: vowels have a state of their own.
figure, axes = plt.subplots(figsize=(8, 2.4), layout="constrained")
picture = axes.imshow(model.emissionprob_, cmap="Blues", vmin=0, aspect="auto")
axes.set_xticks(range(27), alphabet)
axes.set_yticks(
    range(3), [f"state {state} ({share:.0%})" for state, share in enumerate(model.stationary_)]
)
figure.colorbar(picture, label="probability")

# %%
# The most probable state of every letter.
states = model.predict(letters[:60])
print("".join(alphabet[letters[:60]]))
print("".join(map(str, states)))
