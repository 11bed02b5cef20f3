"""What one layer has to do: operators, their work, kernels and memory."""
