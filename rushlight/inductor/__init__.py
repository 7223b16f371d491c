"""Graph -> loops -> fused kernels -> one native call."""
