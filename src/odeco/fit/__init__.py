"""All components of a tensor together: where to start, the best fit, how many there are, and how far to trust it."""
