"""Latent Dirichlet allocation: topics of text."""
