"""The model engine: what every latent-variable model gets from one place."""
