"""scikit-learn estimators: topics."""
