"""Facts with a source: GPUs and CPUs, prices, data sets, and the modes of training."""
