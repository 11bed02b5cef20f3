"""Chainer as a framework that the instrument measures: NumPy on a CPU, CuPy on a GPU."""
