"""A definition for people and tools: deterministic YAML, a Mermaid flowchart, and the JSON Schema that editors complete files by."""

from ductord.engine.export.flowchart import mermaid
from ductord.engine.export.schema import json_schema
from ductord.engine.export.yamlfile import export_yaml

__all__ = ["export_yaml", "json_schema", "mermaid"]
