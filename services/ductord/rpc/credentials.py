"""The key that this process calls others with: what an option says, or a file that is looked at again with every call.

A key is rotated by replacing the file: the next call carries the new one, no process is restarted. A file that is gone or holds no key leaves the last one in
force. It must never log a key, nor say in an error what a file held.
"""

import logging
from collections.abc import Callable
from typing import Final

from ductord.model.keys import Token, parse_token
from ductord.rpc.config import ConfigurationRefused, Settings
from ductord.rpc.files import State, Unfit, content_of, state_of

OPTION: Final = "DUCTOR_API_KEY_FILE"

Metadata = tuple[tuple[str, str], ...]
Sign = Callable[[], Metadata]
"""What a call carries beyond its tenant, asked for anew for each call."""

_log = logging.getLogger("ductor.credentials")


def unsigned() -> Metadata:
    """For calls without a credential."""
    return ()


class Credential:
    """The key in force; `metadata` is a `Sign`. Raises `ConfigurationRefused` for a file that holds no key."""

    def __init__(self, settings: Settings) -> None:
        self._path = settings.api_key_file
        self._token = parse_token(settings.api_key)
        self._state: State = ()
        self._told = ""
        if self._path:
            try:
                self._look()
            except Unfit as unfit:
                raise ConfigurationRefused(str(unfit)) from None

    @property
    def token(self) -> Token | None:
        """The key, None without one. Costs a system call where it is in a file."""
        if self._path:
            try:
                self._look()
                self._told = ""
            except Unfit as unfit:
                if str(unfit) != self._told:
                    self._told = str(unfit)
                    _log.warning("%s; the key that was read before stays in force", unfit)
        return self._token

    def metadata(self) -> Metadata:
        """The credential of a call that is made now; empty without a key."""
        token = self.token
        return () if token is None else (("authorization", f"Bearer {token.text}"),)

    def _look(self) -> None:
        state = state_of(OPTION, self._path, once=True)
        if state == self._state:
            return
        token = parse_token(content_of(OPTION, self._path).decode("ascii", "replace").strip())
        if token is None:
            raise Unfit(f"{OPTION}={self._path} does not hold one key, dk_<tenant>.<id>.<secret>")
        if self._token is not None and token != self._token:
            _log.info("calls carry the key %s… from now on", token.prefix)
        self._state, self._token = state, token
