"""The definitions of a story, in memory: families by slug, each with its published versions."""

import msgspec

from ductord.engine.expressions import Programs, programs_for
from ductord.model.fan import Workflow
from ductord.model.manifest import Manifest


class Version(msgspec.Struct, kw_only=True):
    """A published version. It never changes but for its retirement."""

    definition_id: str
    version_id: str
    number: int
    manifest: Manifest
    programs: Programs
    archived: bool = False


class Catalogue:
    """What child runs can run."""

    def __init__(self) -> None:
        self._families: dict[str, list[Version]] = {}

    def publish(self, manifest: Manifest) -> Version:
        """The next version of the manifest's family."""
        versions = self._families.setdefault(manifest.family_slug, [])
        family = list(self._families).index(manifest.family_slug)
        version = Version(
            definition_id=f"00000000-0000-7000-8000-0d{family:010x}",
            version_id=f"00000000-0000-7000-8000-0e{family:04x}{len(versions) + 1:06x}",
            number=len(versions) + 1,
            manifest=manifest,
            programs=programs_for(manifest),
        )
        versions.append(version)
        return version

    def archive(self, family_slug: str, number: int) -> None:
        """Retire a version: its runs go on, new ones are not started."""
        self._families[family_slug][number - 1].archived = True

    def newest(self, family_slug: str = "") -> Version:
        """The newest version of a family; of the first, where none is named."""
        return self._families[family_slug or next(iter(self._families))][-1]

    def versions(self, family_slug: str) -> tuple[Version, ...]:
        """All versions of a family, the first one first; none of a family that there is not."""
        return tuple(self._families.get(family_slug, ()))

    def version(self, version_id: str) -> Version:
        """The version with this id."""
        return next(v for versions in self._families.values() for v in versions if v.version_id == version_id)

    def workflow(self, family_slug: str, number: int) -> Workflow:
        """What children of this family run, or why none can (`model.needs.WorkflowNeed`)."""
        versions = self._families.get(family_slug)
        if versions is None:
            return Workflow(problem="unknown_family")
        if number > len(versions):
            return Workflow(problem="unknown_version")
        version = versions[number - 1]
        return Workflow(
            definition_id=version.definition_id,
            version_id=version.version_id,
            version=version.number,
            tier=version.manifest.tier,
            input_schema=version.manifest.input_schema,
            problem="archived" if version.archived else "",
        )
