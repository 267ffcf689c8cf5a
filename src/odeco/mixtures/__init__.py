"""Mixtures of Gaussians: moments, likelihood steps, estimator.

Nothing is imported here, because the estimator needs scikit-learn.
"""
