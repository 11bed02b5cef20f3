"""Addresses of the web that people type."""

from urllib.parse import urlsplit

from predictor.errors import SchemaError


def checked_address(text: str, what: str) -> str:
    """An address of http or https without its last slash; SchemaError if it is none.

    Examples
    --------
    >>> checked_address("https://epochcast.example:8000/", "a service")
    'https://epochcast.example:8000'
    """
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, or above 65535
        usable = False
    if not usable:
        raise SchemaError(f"{text!r} is not the address of {what}. Example: https://epochcast.example:8000")
    return text.rstrip("/")
