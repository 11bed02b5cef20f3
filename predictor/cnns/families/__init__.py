"""The zoo's families of CNNs, a module each."""
