"""Errors and warnings of epochcast, to be caught by name; `EpochcastError` and `EpochcastWarning` are the roots."""

from predictor.errors import (
    ArtifactError,
    BackendUnavailableError,
    BudgetExceededError,
    DataError,
    DeviceOutOfMemoryError,
    EpochcastError,
    EpochcastWarning,
    LeftOutWarning,
    ModelError,
    NoisyMeasurementError,
    NotFittedError,
    OutOfRangeError,
    ProfilingError,
    RetiredOptionWarning,
    SchemaError,
    ServiceError,
    StoreError,
    UnknownCnnError,
    UnknownGpuError,
)

__all__ = [
    "ArtifactError", "BackendUnavailableError", "BudgetExceededError", "DataError", "DeviceOutOfMemoryError",
    "EpochcastError", "EpochcastWarning", "LeftOutWarning", "ModelError", "NoisyMeasurementError", "NotFittedError",
    "OutOfRangeError",
    "ProfilingError", "RetiredOptionWarning", "SchemaError", "ServiceError", "StoreError", "UnknownCnnError",
    "UnknownGpuError",
]  # fmt: skip
