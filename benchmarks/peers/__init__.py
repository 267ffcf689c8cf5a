"""Methods of others that benchmarks compare with, and the data that several of them read."""
