"""Named SQL statements from `.sql` files that stand beside the service that runs them.

A file holds blocks that begin with `-- name: x`; comment lines after it say why the statement is as it is. Nothing here builds SQL from text:
a statement is what the file says, so that a test can PREPARE each against the migrated schema.
"""

import re
from collections.abc import Iterator, Mapping
from importlib import resources

_NAME = re.compile(r"^--\s*name:\s*(\w+)\s*$", re.MULTILINE)


class Queries(Mapping[str, str]):
    """The statements of one file, by name: `q["claim_wakeups"]`. Raises KeyError for a name that the file does not have."""

    def __init__(self, package: str, filename: str = "queries.sql") -> None:
        text = resources.files(package).joinpath(filename).read_text("utf-8")
        parts = _NAME.split(text)
        self._statements = {name: body.strip().rstrip(";") for name, body in zip(parts[1::2], parts[2::2], strict=True)}
        if len(self._statements) != len(parts) // 2:
            raise ValueError(f"{package}/{filename}: a statement name stands twice")

    def __getitem__(self, name: str) -> str:
        return self._statements[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._statements)

    def __len__(self) -> int:
        return len(self._statements)
