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

from collections.abc import Iterable
from typing import Any, TypeAlias

from flwr.app import ConfigRecord, Message, RecordDict

__all__ = ["Record", "content", "mail_of", "read", "record_of", "text", "with_mail"]

NAME = "fedssca"
"""The name of the record."""

Record: TypeAlias = dict[str, Any]


def content(record: Record) -> RecordDict:
    """A record as the content of a message."""
    return RecordDict({NAME: ConfigRecord(record)})


def read(message: Message) -> Record:
    """The record of a message; empty if it holds none."""
    if message.has_error() or not message.has_content():
        return {}
    return record_of(message.content)


def record_of(content: RecordDict) -> Record:
    """The record in a content; empty if it holds none."""
    found = content.config_records.get(NAME)
    return dict(found) if found is not None else {}


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
