"""The methods that a question may name beside the default's own: the founding study's two, and the baselines."""
