"""Topics of text. The files follow the flow: documents, counts, moments, spectral, gibbs, inference, summary.

Nothing is imported here, because some of the files need scikit-learn and numba and some do not.
"""
