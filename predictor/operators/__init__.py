"""Operators of a CNN: their work, kernels and memory."""
