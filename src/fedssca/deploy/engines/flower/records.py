"""What a message between ServerApp and ClientApp holds: one record of texts and bytes.

hello   the ServerApp asks who a node is; the answer is its site's name
ask     an envelope of the server, with the mail of other sites for this one
answer  the site's answer to it, with its mail for other sites
error   why there is no answer, in one line
bye     the run is over

Sites cannot send messages to each other, so the server carries their mail. They seal it for each
other (`deploy.site.sealed`): the server can neither read nor change it. A site reads what came from
others when the server asks it next, so the mail travels with the messages that are sent anyway.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from typing import Any, TypeAlias

from flwr.app import ConfigRecord, Message, RecordDict

__all__ = ["Record", "content", "mail_of", "packed", "read", "text", "unpacked", "with_mail"]

NAME = "fedssca"
"""The name of the record."""

HEAD = struct.Struct("<I")
"""The number of bytes of the JSON in a packed record."""

Record: TypeAlias = dict[str, Any]
"""Texts, numbers, bytes, and lists of them."""


def content(record: Record) -> RecordDict:
    """A record as the content of a message."""
    return RecordDict({NAME: ConfigRecord(record)})


def read(message: Message) -> Record:
    """The record of a message; empty if it holds none."""
    if message.has_error() or not message.has_content():
        return {}
    found = message.content.config_records.get(NAME)
    return dict(found) if found is not None else {}


def packed(record: Record) -> bytes:
    """A record as bytes for a process on the same machine: what is text as JSON, then the bytes."""
    bulk: list[bytes] = []

    def told(value: Any) -> Any:
        if isinstance(value, bytes):
            bulk.append(value)
            return {"bytes": len(value)}
        return [told(each) for each in value] if isinstance(value, list) else value

    head = json.dumps({name: told(value) for name, value in record.items()}).encode()
    return b"".join([HEAD.pack(len(head)), head, *bulk])


def unpacked(data: bytes) -> Record:
    """The record of `packed`."""
    (length,) = HEAD.unpack_from(data)
    place = HEAD.size + length
    head = json.loads(data[HEAD.size : place])

    def meant(value: Any) -> Any:
        nonlocal place
        if isinstance(value, dict):
            begin, place = place, place + value["bytes"]
            return data[begin:place]
        return [meant(each) for each in value] if isinstance(value, list) else value

    return {name: meant(value) for name, value in head.items()}


def text(record: Record, key: str) -> str:
    """A text of a record; empty if there is none."""
    found = record.get(key, "")
    return found if isinstance(found, str) else ""


def with_mail(record: Record, mail: Iterable[tuple[str, bytes]]) -> Record:
    """A record with mail: pairs of a site's name and an envelope."""
    pairs = list(mail)
    if not pairs:
        return record
    return record | {"sites": [site for site, _ in pairs], "mail": [data for _, data in pairs]}


def mail_of(record: Record) -> list[tuple[str, bytes]]:
    """The mail in a record; empty if there is none, or if it is malformed."""
    sites, mail = record.get("sites"), record.get("mail")
    if not isinstance(sites, list) or not isinstance(mail, list) or len(sites) != len(mail):
        return []
    return [(s, m) for s, m in zip(sites, mail, strict=True) if isinstance(m, bytes)]
