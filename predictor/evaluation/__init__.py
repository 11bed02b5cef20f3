"""Evaluation: how far predictions lie from measurements that the fit never saw, scenario by scenario.

Called by `epochcast evaluate`, benchmarks and notebooks; calls features, predictors and importers.
Imports nothing itself: ask `run.evaluate`, `report.write_report`, `published.published_features`.
"""
