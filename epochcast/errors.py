"""Errors and warnings of epochcast, to be caught by name; `EpochcastError` is the root of all that it refuses."""

from predictor.errors import (
    ArtifactError,
    BackendUnavailableError,
    DataError,
    DeviceOutOfMemoryError,
    EpochcastError,
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
    "ArtifactError", "BackendUnavailableError", "DataError", "DeviceOutOfMemoryError", "EpochcastError",
    "LeftOutWarning", "ModelError", "NoisyMeasurementError", "NotFittedError", "OutOfRangeError", "ProfilingError",
    "RetiredOptionWarning", "SchemaError", "ServiceError", "StoreError", "UnknownCnnError", "UnknownGpuError",
]  # fmt: skip
