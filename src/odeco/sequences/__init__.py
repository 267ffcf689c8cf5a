"""Hidden Markov models of sequences: moments, likelihood steps, estimator.

Nothing is imported here, because the estimator needs scikit-learn.
"""
