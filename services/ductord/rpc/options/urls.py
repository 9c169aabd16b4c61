"""Connection strings: with another login, and as they may be shown."""

from typing import Final
from urllib.parse import urlsplit, urlunsplit

from ductord.model.keys import parse_token

HIDDEN: Final = "***"


def as_user(url: str, user: str) -> str:
    """`url` with another user and the same password, host and parameters."""
    parts = urlsplit(url)
    credentials, at, host = parts.netloc.rpartition("@")
    _, colon, password = credentials.partition(":")
    return urlunsplit(parts._replace(netloc=f"{user}{colon}{password}@{host}" if at else f"{user}@{host}"))


def masked(url: str) -> str:
    """A secret option without what is secret of it: of a connection string the password, of a key all but its prefix, else all."""
    if not url:
        return ""
    if (token := parse_token(url)) is not None:
        return f"{token.prefix}{HIDDEN}"
    if "://" not in url:
        return HIDDEN
    try:
        parts = urlsplit(url)
    except ValueError:
        return HIDDEN
    credentials, at, host = parts.netloc.rpartition("@")
    user, colon, _ = credentials.partition(":")
    query = "&".join(p for p in parts.query.split("&") if not p.lower().startswith("password="))
    return urlunsplit(parts._replace(netloc=f"{user}{colon and ':' + HIDDEN}{at}{host}", query=query))
