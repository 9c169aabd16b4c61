"""The definition files of a directory, read and told apart. It judges no definition; that is the service's part."""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from ductord.engine.document import MAX_DOCUMENT_BYTES, read_document
from ductord.model.errors import Violation
from ductord.model.jsonvalue import JSON, storable_text

SUFFIXES: Final = (".yaml", ".yml", ".json")


class File(msgspec.Struct, frozen=True, kw_only=True):
    """One file. `definition` is None when it cannot be loaded; `message` and `violations` then say why. `path` is relative to the directory."""

    path: str
    text: str = ""
    family_slug: str = ""
    definition: JSON = None
    message: str = ""
    violations: tuple[Violation, ...] = ()


def read_files(folder: Path) -> list[File]:
    """Every YAML and JSON file of a directory and those under it, in order of path. What begins with a dot is passed over (so are the
    directories behind a mounted ConfigMap). Two files of one family are both refused: nothing says which is meant. Raises OSError."""
    files = [_read(folder, path) for path in sorted(_paths(folder))]
    of_family: dict[str, list[str]] = defaultdict(list)
    for file in files:
        of_family[file.family_slug].append(file.path)
    return [_alone(file, of_family[file.family_slug]) for file in files]


def _paths(folder: Path) -> Iterable[Path]:
    for path in folder.iterdir():
        if path.name.startswith("."):
            continue
        if path.is_dir():
            # A link to a directory may lead back to where it stands.
            if not path.is_symlink():
                yield from _paths(path)
        elif path.suffix.lower() in SUFFIXES and path.is_file():
            yield path


def _read(folder: Path, path: Path) -> File:
    name = storable_text(path.relative_to(folder).as_posix())
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_DOCUMENT_BYTES + 1)
    except OSError as error:
        return File(path=name, message=f"cannot be read: {error.strerror}")
    if len(data) > MAX_DOCUMENT_BYTES:
        return File(path=name, message=f"is larger than {MAX_DOCUMENT_BYTES:,} bytes")
    read = read_document(data, door="json" if path.suffix.lower() == ".json" else "yaml")
    if read.definition is None or read.violations:
        return File(path=name, message="is not a workflow definition", violations=read.violations)
    slug = read.definition.get("family_slug")
    return File(
        path=name,
        text=data.decode(),
        family_slug=slug if isinstance(slug, str) else "",
        definition=read.definition,
    )


def _alone(file: File, paths: list[str]) -> File:
    if not file.family_slug or len(paths) == 1:
        return file
    others = ", ".join(path for path in paths if path != file.path)
    return File(
        path=file.path, family_slug=file.family_slug, message=f"its family {file.family_slug} stands in {others} too"
    )
