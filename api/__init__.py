"""The service: epochcast's answers over HTTP."""
