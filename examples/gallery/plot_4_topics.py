"""
Topics of Python's own documentation
====================================

Every Python installation contains a corpus: the documentation strings of its standard library.
Which words are used together?
"""

# %%
# Word counts of the documentation strings of the first 146 modules.
from itertools import takewhile

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import CountVectorizer

from odeco.datasets import python_documentation
from odeco.models import TensorLDA

documents = list(takewhile(lambda document: document.module < "email", python_documentation()))
vectorizer = CountVectorizer(stop_words="english", token_pattern=r"[a-z]{3,}", min_df=5, max_df=0.3)
counts = vectorizer.fit_transform(document.text for document in documents)
counts = counts[np.asarray(counts.sum(axis=1)).ravel() >= 3]
words = vectorizer.get_feature_names_out()
print(f"{counts.shape[0]:,} documents, {counts.shape[1]:,} words")

# %%
# Six topics by tensor decomposition, refined by Gibbs sweeps.
model = TensorLDA(6, random_state=0).fit(counts)
for number, topic in enumerate(model.topic_word_):
    print(f"{number}.", ", ".join(words[topic.argsort()[::-1][:9]]))

# %%
# The words that distinguish the topics.
strongest = np.unique(np.concatenate([topic.argsort()[::-1][:4] for topic in model.topic_word_]))
share = model.topic_word_[:, strongest]
share = share / share.sum(axis=0)
order = np.lexsort((-share.max(axis=0), share.argmax(axis=0)))
figure, axes = plt.subplots(figsize=(8, 3), layout="constrained")
picture = axes.imshow(share[:, order], cmap="Blues", vmin=0, vmax=1, aspect="auto")
axes.set_xticks(range(len(strongest)), words[strongest][order], rotation=60, ha="right")
axes.set_yticks(range(6), [f"topic {number}" for number in range(6)])
figure.colorbar(picture, label="share of the word")
