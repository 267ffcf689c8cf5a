"""scikit-learn estimators: topics, mixtures, sequences, sources, latent classes, communities."""

from odeco._util.lazy import make_lazy

make_lazy(__name__)
