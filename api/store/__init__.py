"""The measurement store: API keys, uploads and the rows they brought, on SQLite or PostgreSQL.

A row is stored once, however often and with whichever keys it is sent; nothing is acknowledged before it is committed.
"""
