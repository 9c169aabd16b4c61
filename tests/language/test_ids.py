"""Derived ids are UUIDv5, on every machine and in every release (rulings A6, N1)."""

import uuid

from hypothesis import given
from hypothesis import strategies as st

from ductord.model import ids
from tests.language.documents import law


@law
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])) | st.integers(), max_size=5))
def test_a_derived_id_is_the_uuid_of_its_parts(parts: list[str | int]) -> None:
    expected = str(uuid.uuid5(ids.NAMESPACE, "\x1f".join(str(part) for part in parts)))
    assert ids.derived(*parts) == expected
    assert ids.canonical(expected) == expected


def test_an_idempotency_key_never_changes_a6() -> None:
    assert ids.idempotency_key("r", "s", 3, 7, "item") == "f188eae3-ffeb-5895-a422-cc580971d37a"
