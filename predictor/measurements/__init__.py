"""Measurement tables: columns and checks, reading and writing, features."""
