"""Independent sources of signals: moments, likelihood steps, estimator.

Nothing is imported here, because the estimator needs scikit-learn.
"""
