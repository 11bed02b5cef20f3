"""The roofline model: iteration times from kernels and GPU specifications, by log-linear coefficients."""
