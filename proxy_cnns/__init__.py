"""The instrument: profiles proxy CNNs and single operators on the GPU at hand."""
