"""cuDNN 9 for Chainer, whose own binding CuPy has dropped."""
