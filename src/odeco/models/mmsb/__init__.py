"""Mixed-membership stochastic block models: communities of graphs."""
