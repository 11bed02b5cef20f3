"""The roofline model: kernels and GPU specifications to the time of one iteration, by log-linear coefficients.

`rates` says what a GPU can do, `features` what makes a kernel miss it, `design` lays measured rows out as sparse
matrices, `fitting` finds the coefficients, `coefficients` applies them with numpy alone, which is all that serving
needs.
"""
