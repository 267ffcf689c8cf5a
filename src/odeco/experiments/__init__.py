"""The paper's figure and claims, run again."""
