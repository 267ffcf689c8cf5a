"""Gibbs sweeps that refine topics: compiled kernels, priors, and the sampler."""

from odeco.topics.gibbs._kernels import LARGEST_COUNT, compiled, sweep_documents
from odeco.topics.gibbs._priors import exceedances, learn_alpha, learn_eta
from odeco.topics.gibbs._refine import refine_batch, refine_topics
from odeco.topics.gibbs._sampler import Sampler, Tokens, choose_lanes

__all__ = [
    "LARGEST_COUNT",
    "Sampler",
    "Tokens",
    "choose_lanes",
    "compiled",
    "exceedances",
    "learn_alpha",
    "learn_eta",
    "refine_batch",
    "refine_topics",
    "sweep_documents",
]
