"""API keys: who may upload.

Random, shown once, kept as a hash. A key is 256 random bits, which cannot be guessed however fast hashes are
computed, so a plain SHA-256 protects it at rest: the slow, salted hashes of passwords exist because people
choose passwords, and here each upload would pay for one.
"""

import hashlib
import re
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Engine, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from api.store.engine import reading, writing
from api.store.tables import api_keys, uploads
from predictor.errors import SchemaError, nearest

__all__ = ["ApiKey", "add_key", "find_key", "list_keys", "now", "revoke_key"]

_PREFIX = "epochcast_"
_NAME = re.compile(r"[\w][\w .@+-]{0,98}[\w]|[\w]")


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as it is stored, which cannot be used to upload; times in UTC, `rows` those first sent with it."""

    id: int
    name: str
    hint: str
    created_at: str
    revoked_at: str | None
    uploads: int = 0
    rows: int = 0


def now() -> str:
    """Give the time, ISO 8601 in UTC."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def add_key(engine: Engine, name: str) -> str:
    """Make a key of this name and return it: the only time that anybody sees it.

    Raises
    ------
    SchemaError
        If the name is taken (by a revoked key, too, so that attribution stays unique) or has odd characters.
    """
    if not _NAME.fullmatch(name):
        raise SchemaError(
            f"a key cannot be called {name!r}. Give 1 to 100 letters, digits and any of ' .@+-_' between them."
        )
    secret = _PREFIX + secrets.token_urlsafe(32)
    row = {
        "name": name,
        "key_sha256": _hash(secret),
        "hint": secret.removeprefix(_PREFIX)[:4],
        "created_at": now(),
    }
    try:
        with writing(engine) as connection:
            connection.execute(insert(api_keys).values(row))
    except IntegrityError:
        raise SchemaError(f"there is a key called {name!r} already. Choose another name.") from None
    return secret


def revoke_key(engine: Engine, name: str) -> None:
    """Refuse this key from now on; what was uploaded with it stays, attributed to it.

    Raises
    ------
    SchemaError
        If no key that is valid has this name.
    """
    with writing(engine) as connection:
        valid = api_keys.c.revoked_at.is_(None)
        found = update(api_keys).where(api_keys.c.name == name, valid).values(revoked_at=now())
        if connection.execute(found).rowcount == 1:
            return
        names = connection.execute(select(api_keys.c.name).where(valid)).scalars().all()
    raise SchemaError(
        f"no valid key is called {name!r}. Nearest: {nearest(name, names)}. `epochcast keys list` shows all."
    )


def list_keys(engine: Engine) -> list[ApiKey]:
    """All keys, oldest first, with what was uploaded with them."""
    counted = (
        select(api_keys, func.count(uploads.c.id), func.coalesce(func.sum(uploads.c.n_stored), 0))
        .outerjoin(uploads, uploads.c.key_id == api_keys.c.id)
        .group_by(api_keys.c.id)
        .order_by(api_keys.c.id)
    )
    with reading(engine) as connection:
        return [
            ApiKey(id_, name, hint, created, revoked, int(n_uploads), int(n_rows))
            for id_, name, _, hint, created, revoked, n_uploads, n_rows in connection.execute(counted)
        ]


def find_key(engine: Engine, secret: str) -> ApiKey | None:
    """Find the key, valid or revoked, that this secret is; None if it is none.

    Notes
    -----
    The database compares hashes, so how long it takes tells nothing about the key.
    """
    if not secret.startswith(_PREFIX) or len(secret) > 100:
        return None
    with reading(engine) as connection:
        found = connection.execute(select(api_keys).where(api_keys.c.key_sha256 == _hash(secret))).first()
    return (
        None
        if found is None
        else ApiKey(found.id, found.name, found.hint, found.created_at, found.revoked_at)
    )


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
