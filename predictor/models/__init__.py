"""From tables to fitted models, and from models to times."""
