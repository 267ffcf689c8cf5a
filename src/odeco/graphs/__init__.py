"""Communities of graphs: moments, likelihood steps, estimator.

Nothing is imported here, because the estimator needs scikit-learn.
"""
