"""How to optimise: algorithms, step sizes, surrogates, the solver, and combinators of algorithms.

A method may import `problem` and `data`. It knows neither where rounds happen nor what is hidden.
"""
