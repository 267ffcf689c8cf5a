"""Answers that cost privacy budget: the ledger, the calibration of noise, and the noise itself."""
