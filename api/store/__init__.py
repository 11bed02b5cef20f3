"""The measurement store: API keys, uploads and the rows they brought, on SQLite or PostgreSQL.

Called by the routes and by the commands `keys` and `fit --store`; calls the core's measurement schema. A row is
stored once, whoever sends it and however often; nothing is acknowledged before it is committed.
"""
