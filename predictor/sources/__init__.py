"""Where CNNs come from: zoo names, layer table CSVs, ONNX files, PyTorch modules and Chainer chains."""
