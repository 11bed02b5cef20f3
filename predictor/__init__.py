"""The core: layer tables, features, regression models, evaluation, prediction, comparison. No GPU, no HTTP."""
