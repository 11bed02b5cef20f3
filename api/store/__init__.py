"""The measurement store: API keys, uploads and the rows they brought, on SQLite or PostgreSQL.

A row is stored once, whoever sends it and however often; nothing is acknowledged before it is committed.
"""
