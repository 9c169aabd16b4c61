"""Where `${{ }}` begins and ends (ruling L3)."""

import pytest

from ductord.engine.templates import Unterminated, is_static, scan


@pytest.mark.parametrize(
    ("string", "sources"),
    [
        ("${{ a }}", ["a"]),
        ("x ${{a}} y ${{ b }}", ["a", "b"]),
        ("${{ '}}' }}", ["'}}'"]),
        ('${{ "a\\"}}" }}', ['"a\\"}}"']),
        ("${{ r'\\' }}}}", ["r'\\'"]),
        ("${{ '''a'}}''' }}", ["'''a'}}'''"]),
        ('${{ {"a": {"b": 1}}}}', ['{"a": {"b": 1}}']),
        ("${{ a // }}\n + 1 }}", ["a // }}\n + 1"]),
        ("${{ a / b }}", ["a / b"]),
        ("${{}}", [""]),
    ],
)
def test_sources(string: str, sources: list[str]) -> None:
    parts = scan(string)
    assert parts is not None
    assert [part.source for part in parts if part.source is not None] == sources
    for part in parts:
        text = part.text if part.source is None else part.source
        assert string[part.offset : part.offset + len(text)] == text


@pytest.mark.parametrize("string", ["${{ a", "x ${{ 'a }}", "${{ a } }", "${{ {a }}"])
def test_unterminated(string: str) -> None:
    with pytest.raises(Unterminated) as caught:
        scan(string)
    assert caught.value.offset == string.index("${{")


def test_no_template() -> None:
    assert scan("price: $5 {{x}} ${x}") is None
    assert is_static({"a": ["${x}", 1, None, {"b": "{{ }}"}]})
    assert not is_static({"a": [{"b": "x${{ y }}"}]})
