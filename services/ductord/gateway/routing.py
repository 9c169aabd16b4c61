"""Which RPC an HTTP method and path mean, from the `google.api.http` annotations in the descriptors; the only list of REST paths is the contract.

The last colon of the last segment splits off the verb, then each segment is percent-decoded once
(AP-05): an id with a colon or slash is written with `%3A`, `%2F`.
A literal segment wins over a variable. Templates are literals and `{field}` of one segment; anything else in an annotation is a TypeError at start.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import unquote_to_bytes

import msgspec
from google.api import annotations_pb2, http_pb2
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

from ductord.model.errors import Refusal

_TEMPLATE: Final = re.compile(r"(?:/(?:[A-Za-z0-9._~-]+|\{[a-z0-9_]+\}))+(?::[A-Za-z0-9]+)?")
_BROKEN: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_METHODS: Final = ("get", "put", "post", "delete", "patch")


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One REST binding of an RPC. `variables` are the fields that the path fills, in order; `takes_body`: the body holds every other field."""

    rpc: MethodDescriptor
    http_method: str
    template: str
    variables: tuple[str, ...]
    takes_body: bool


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """A route and the decoded values of its path variables."""

    route: Route
    values: Mapping[str, str]


class _Node:
    __slots__ = ("literals", "variable", "verbs")

    def __init__(self) -> None:
        self.literals: dict[str, _Node] = {}
        self.variable: _Node | None = None
        self.verbs: dict[str, dict[str, Route]] = {}
        """Verb (empty for none) → HTTP method → route, of paths that end here."""


class Routes:
    """All REST routes of the given services."""

    def __init__(self, services: Iterable[ServiceDescriptor]) -> None:
        self._root = _Node()
        self.all: list[Route] = []
        for service in services:
            for rpc in service.methods:
                for route in _bindings(rpc):
                    self._add(route)

    def match(self, http_method: str, raw_path: str) -> Match:
        """The route of a request; `raw_path` is still percent-encoded and has no query.

        Raises `Refusal` ROUTE_NOT_FOUND (also for an unknown verb), METHOD_NOT_ALLOWED (metadata `allow`), FIELD_INVALID for an escape that is none.
        """
        path, verb = raw_path, ""
        segment = raw_path.rfind("/")
        colon = raw_path.rfind(":")
        if colon > segment:
            path, verb = raw_path[:colon], raw_path[colon + 1 :] or ":"  # an empty verb is one that nothing has
        segments = path.split("/")[1:]
        allowed: set[str] = set()
        for methods, values in _walk(self._root, segments, 0, verb):
            route = methods.get(http_method)
            if route is not None:
                return Match(
                    route=route, values=dict(zip(route.variables, map(_decoded, route.variables, values), strict=True))
                )
            allowed.update(methods)
        if allowed:
            allow = ", ".join(sorted(allowed))
            raise Refusal(
                "UNIMPLEMENTED", "METHOD_NOT_ALLOWED", f"this path is served with {allow}", metadata={"allow": allow}
            )
        raise Refusal("NOT_FOUND", "ROUTE_NOT_FOUND", "nothing is served under this path")

    def _add(self, route: Route) -> None:
        node = self._root
        path, _, verb = route.template.partition(":")
        for segment in path.split("/")[1:]:
            if segment.startswith("{"):
                if node.variable is None:
                    node.variable = _Node()
                node = node.variable
            else:
                node = node.literals.setdefault(segment, _Node())
        methods = node.verbs.setdefault(verb, {})
        if route.http_method in methods:
            raise TypeError(
                f"{route.http_method} {route.template} is both {methods[route.http_method].rpc.full_name} and {route.rpc.full_name}"
            )
        methods[route.http_method] = route
        self.all.append(route)


def _walk(node: _Node, segments: list[str], at: int, verb: str) -> Iterator[tuple[dict[str, Route], tuple[str, ...]]]:
    """Every end that fits, literals first, with the raw values of the variables passed."""
    if at == len(segments):
        methods = node.verbs.get(verb)
        if methods:
            yield methods, ()
        return
    segment = segments[at]
    literal = node.literals.get(segment)
    if literal is not None:
        yield from _walk(literal, segments, at + 1, verb)
    if node.variable is not None and segment:
        for methods, values in _walk(node.variable, segments, at + 1, verb):
            yield methods, (segment, *values)


def _decoded(variable: str, segment: str) -> str:
    if "%" not in segment and segment.isascii():
        return segment
    try:
        if _BROKEN.search(segment):
            raise ValueError
        text = unquote_to_bytes(segment).decode()
    except ValueError:
        text = "\0"
    if "\0" in text:
        message = f"{variable} is not percent-encoded UTF-8 text in this path"
        raise Refusal("INVALID_ARGUMENT", "FIELD_INVALID", message, metadata={"field": variable})
    return text


def _bindings(rpc: MethodDescriptor) -> Iterator[Route]:
    rule = rpc.GetOptions().Extensions[annotations_pb2.http]
    if rule.WhichOneof("pattern") is None:
        return
    for binding in (rule, *rule.additional_bindings):
        yield _route(rpc, binding)


def _route(rpc: MethodDescriptor, rule: http_pb2.HttpRule) -> Route:
    http_method = rule.WhichOneof("pattern")
    template = getattr(rule, http_method) if http_method in _METHODS else ""
    variables = tuple(part[1:].partition("}")[0] for part in template.split("/") if part.startswith("{"))
    if not _TEMPLATE.fullmatch(template) or rule.body not in ("", "*") or rule.response_body:
        raise TypeError(f"{rpc.full_name}: this google.api.http annotation is not spoken here yet")
    if unknown := set(variables) - set(rpc.input_type.fields_by_name):
        raise TypeError(
            f"{rpc.full_name}: its path names {', '.join(sorted(unknown))}, which its request does not have"
        )
    return Route(
        rpc=rpc, http_method=http_method.upper(), template=template, variables=variables, takes_body=rule.body == "*"
    )
