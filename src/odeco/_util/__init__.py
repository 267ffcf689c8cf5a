"""The version, and what every package needs: arguments, threads, scaling, types, states and files,
optional imports.
"""

__version__ = "0.3.0"
