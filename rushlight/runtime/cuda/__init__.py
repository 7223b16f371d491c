"""The CUDA device's runtime: opening it, the vendor's libraries, precompiled kernels."""
