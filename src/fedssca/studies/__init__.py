"""Studies of the product: the paper reproduced, benchmarks, and the privacy audit."""
