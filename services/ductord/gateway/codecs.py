"""What connectrpc reads and writes messages with: protobuf's binary form, and proto JSON that is strict and exact (AP-01, AP-02, ruling L5).

A request leaves a codec as `Asked`, an answer comes to it as `Answer`. Errors leave with their code and details: connectrpc passes those on untouched.
"""

import logging
from collections.abc import Iterable
from typing import Any, Final, cast

from google.protobuf.descriptor import Descriptor, MethodDescriptor
from google.protobuf.message import DecodeError, Message

from ductord.gateway.exchange import current
from ductord.gateway.faults import Reading, malformed
from ductord.gateway.reading import Asked, Reader
from ductord.gateway.statuses import Told
from ductord.model.errors import Refusal
from ductord.rpc import errors
from ductord.rpc.vocabulary import Dialect
from ductord.rpc.writing import Writer

_log: Final = logging.getLogger("ductor.gateway")


class Answer:
    """An answer on its way to a codec. `spliced`: see `reading.Asked`."""

    __slots__ = ("message", "spliced")

    def __init__(self, message: Message, spliced: bool) -> None:
        self.message = message
        self.spliced = spliced


def told(refusal: Refusal) -> Told:
    """A refusal of this process as the error of the exchange at hand."""
    return Told(errors.to_status(refusal, request_id=current.get().request_id, budget=errors.LARGEST_BUDGET))


class BinaryCodec:
    """`application/proto` and gRPC-Web's binary messages. Unknown tags are ignored, as protobuf has it."""

    def name(self) -> str:
        """The codec's name in content types."""
        return "proto"

    def decode(self, data: bytes | bytearray, message_class: type[Any]) -> Asked:
        """The request in `data`."""
        try:
            return Asked(message=message_class.FromString(bytes(data)))
        except DecodeError:
            raise told(malformed("the request is not the message that this RPC takes")) from None

    def encode(self, answer: Answer) -> bytes:
        """The answer's bytes."""
        return answer.message.SerializeToString()


class JsonCodec:
    """`application/json` in the PROTO dialect."""

    def __init__(self, rpcs: Iterable[MethodDescriptor]) -> None:
        self._reader = Reader(Dialect.PROTO)
        self._spliced = Writer(Dialect.PROTO)
        self._twinned = Writer(Dialect.PROTO, spliced=False)
        for rpc in rpcs:  # what cannot be spoken is found at start
            self._reader.of(rpc.input_type)
            self._spliced.of(rpc.output_type)
            self._twinned.of(rpc.output_type)

    def name(self) -> str:
        """The codec's name in content types."""
        return "json"

    def decode(self, data: bytes | bytearray, message_class: type[Any]) -> Asked:
        """The request in `data`."""
        reading = Reading()
        try:
            reader = self._reader.of(cast(Descriptor, message_class.DESCRIPTOR))
            return self._reader.asked(reader, self._reader.members(reader, bytes(data), reading), reading)
        except Refusal as refusal:
            raise told(refusal) from None
        except Exception as error:
            raise _unexpected(error) from None

    def encode(self, answer: Answer) -> bytes:
        """The answer's text."""
        try:
            return (self._spliced if answer.spliced else self._twinned).text(answer.message)
        except Exception as error:
            raise _unexpected(error) from None


def _unexpected(error: Exception) -> Told:
    exchange = current.get()
    _log.error("%s raised", exchange.method, exc_info=error, extra={"request_id": exchange.request_id})
    return told(errors.internal())
