"""API keys: who may upload.

Random, shown once, kept as a hash. A key is 256 random bits, which cannot be guessed however fast hashes are
computed, so a plain SHA-256 protects it at rest: the slow, salted hashes of passwords exist because people
choose passwords, and here each upload would pay for one.
"""

import hashlib
import re
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Engine, and_, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from api.store.engine import reading, writing
from api.store.tables import api_keys, uploads
from predictor.errors import SchemaError, nearest

_PREFIX = "epochcast_"
_NAME = re.compile(r"[\w][\w .@+-]{0,98}[\w]|[\w]")


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A stored key, without its secret; times are in UTC, `rows` counts the measurements that it was first to send."""

    id: int
    name: str
    hint: str
    created_at: str
    revoked_at: str | None
    expires_at: str | None = None
    uploads: int = 0
    rows: int = 0

    @property
    def problem(self) -> str | None:
        """Why the key is refused (revoked or expired, and when); None if it is valid."""
        if self.revoked_at is not None:
            return f"was revoked on {self.revoked_at[:10]}"
        if self.expires_at is not None and self.expires_at <= now():
            return f"expired on {self.expires_at[:10]}"
        return None


def now(days_ahead: float = 0.0) -> str:
    """Current time plus `days_ahead`, ISO 8601 in UTC."""
    at = datetime.now(UTC) + timedelta(days=days_ahead)
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")


def add_key(engine: Engine, name: str, days: float | None = None) -> str:
    """Create a key, valid for `days` or until it is revoked, and return its secret, which is not stored.

    SchemaError if the name is taken (by a revoked key, too, so that attribution stays unique) or has odd characters.
    """
    if not _NAME.fullmatch(name):
        raise SchemaError(
            f"a key cannot be called {name!r}. Give 1 to 100 letters, digits and any of ' .@+-_' between them."
        )
    secret = _PREFIX + secrets.token_urlsafe(32)
    row = {"name": name, "created_at": now()} | _of_secret(secret, days)
    try:
        with writing(engine) as connection:
            connection.execute(insert(api_keys).values(row))
    except IntegrityError:
        raise SchemaError(f"there is a key called {name!r} already. Choose another name.") from None
    return secret


def rotate_key(engine: Engine, name: str, days: float | None = None, keep_old_days: float = 0.0) -> str:
    """Replace the key of a name and return the new secret; SchemaError if none has the name, or it was revoked.

    The new key is valid for `days`, or until it is revoked; the old one for `keep_old_days` more.
    """
    secret = _PREFIX + secrets.token_urlsafe(32)
    with writing(engine) as connection:
        row = connection.execute(
            select(api_keys.c.key_sha256).where(api_keys.c.name == name, api_keys.c.revoked_at.is_(None))
        ).first()
        if row is not None:
            before = {"previous_sha256": row.key_sha256, "previous_until": now(keep_old_days)}
            connection.execute(
                update(api_keys).where(api_keys.c.name == name).values(before | _of_secret(secret, days))
            )
            return secret
    raise _no_such_key(engine, name)


def revoke_key(engine: Engine, name: str) -> None:
    """Refuse this key from now on; what was uploaded with it stays, attributed to it.

    SchemaError if no key has this name, or it was revoked before; a key that expired can be revoked.
    """
    with writing(engine) as connection:
        valid = api_keys.c.revoked_at.is_(None)
        revoked = update(api_keys).where(api_keys.c.name == name, valid).values(revoked_at=now())
        if connection.execute(revoked).rowcount == 1:
            return
    raise _no_such_key(engine, name)


def _no_such_key(engine: Engine, name: str) -> SchemaError:
    with reading(engine) as connection:
        valid = select(api_keys.c.name).where(api_keys.c.revoked_at.is_(None))
        names = connection.execute(valid).scalars().all()
    return SchemaError(
        f"no valid key is called {name!r}. Nearest: {nearest(name, names)}. `epochcast keys list` shows all."
    )


def _of_secret(secret: str, days: float | None) -> dict[str, str | None]:
    """Columns that the store keeps of a secret: its hash, a hint and its end."""
    hint = secret.removeprefix(_PREFIX)[:4]
    return {"key_sha256": _hash(secret), "hint": hint, "expires_at": None if days is None else now(days)}


def list_keys(engine: Engine) -> list[ApiKey]:
    """All keys, oldest first, with what was uploaded with them."""
    counted = (
        select(
            api_keys,
            func.count(uploads.c.id).label("n_uploads"),
            func.coalesce(func.sum(uploads.c.n_stored), 0).label("n_rows"),
        )
        .outerjoin(uploads, uploads.c.key_id == api_keys.c.id)
        .group_by(api_keys.c.id)
        .order_by(api_keys.c.id)
    )
    with reading(engine) as connection:
        return [_key(row, row.n_uploads, row.n_rows) for row in connection.execute(counted)]


def find_key(engine: Engine, secret: str) -> ApiKey | None:
    """Find the key of a secret, valid or revoked; None if no key has this secret.

    The database compares hashes, so how long it takes tells nothing about the key.
    """
    if not secret.startswith(_PREFIX) or len(secret) > 100:
        return None
    sha256 = _hash(secret)
    before = and_(api_keys.c.previous_sha256 == sha256, api_keys.c.previous_until > now())
    with reading(engine) as connection:
        row = connection.execute(select(api_keys).where(or_(api_keys.c.key_sha256 == sha256, before))).first()
    return None if row is None else _key(row)


def _key(row: Any, uploads: int = 0, rows: int = 0) -> ApiKey:
    times = row.created_at, row.revoked_at, row.expires_at
    return ApiKey(row.id, row.name, row.hint, *times, int(uploads), int(rows))


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
