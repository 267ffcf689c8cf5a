"""Planted problems with known components, and corpora that every Python installation carries."""

from odeco.datasets.corpora import Document, python_code, python_documentation
from odeco.datasets.planted import appendix_a, gaussian_noise, planted_independent, planted_orthogonal

__all__ = [
    "Document",
    "appendix_a",
    "gaussian_noise",
    "planted_independent",
    "planted_orthogonal",
    "python_code",
    "python_documentation",
]
