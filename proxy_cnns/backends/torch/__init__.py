"""PyTorch as a framework that the instrument measures."""
