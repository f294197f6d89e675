"""The schema of every note: what the server asks, what a site answers, what peers tell each other.

An envelope is checked here, in both directions, before anything reads its note. Numbers are finite
and have ranges, texts and lists have lengths, and keys that are not due are refused. So neither
side computes with, allocates for, or shows what a stranger wrote before it is known to be sound.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired, TypeAlias

from pydantic import AllowInfNan, ConfigDict, Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from fedssca.rounds.codec import DTYPES, NOTE, Envelope, InvalidMessage, note_text

__all__ = [
    "MOST_ROWS",
    "ErrorNote",
    "check_answer",
    "check_peer",
    "check_request",
    "one_line",
]

MOST_ROWS = 1 << 28
"""The largest number of rows of all sites of a run: their labels take 1 GiB."""
MOST_FEATURES = 1 << 20
MOST_SITES = 10_000
LONGEST_LINE = 500
"""The number of characters of the longest error that a site may report."""

STRICT = ConfigDict(extra="forbid", strict=True)
Count: TypeAlias = Annotated[int, Field(ge=0, le=MOST_ROWS)]
Finite: TypeAlias = Annotated[float, AllowInfNan(False)]
Whole: TypeAlias = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Name: TypeAlias = Annotated[str, Field(max_length=1000)]
Text: TypeAlias = Annotated[str, Field(max_length=10_000)]
Hexadecimal: TypeAlias = Annotated[str, Field(pattern=r"^[0-9a-f]*$", max_length=128)]
Names: TypeAlias = Annotated[list[Name], Field(max_length=MOST_FEATURES)]
Members: TypeAlias = Annotated[list[Name], Field(min_length=1, max_length=MOST_SITES)]
Value: TypeAlias = bool | Whole | Finite | Text
SOME = Field(max_length=100_000)
Values: TypeAlias = Annotated[list[Value], SOME]
Moments: TypeAlias = Annotated[list[Finite], Field(min_length=3, max_length=3)]
Seconds: TypeAlias = Annotated[float, Field(gt=0, le=1e7)]
Categories: TypeAlias = Annotated[
    list[Annotated[list[Count], Field(max_length=MOST_FEATURES)]], Field(max_length=MOST_FEATURES)
]
"""The places of the features of each column of categories."""
Part: TypeAlias = Literal["rows", "test", "new"]


@with_config(STRICT)
class ErrorNote(TypedDict):
    """A site could not answer."""

    message: Annotated[str, Field(max_length=4 * LONGEST_LINE)]
    peer: NotRequired[Name]
    """The peer that the site could not reach, as it says."""


@with_config(STRICT)
class IdsQuestion(TypedDict):
    """The server asks for a digest of a site's ids."""

    which: Literal["rows", "new"]
    label: Name | Names
    run: Hexadecimal


@with_config(STRICT)
class IdsAnswer(TypedDict):
    """What a site tells of its ids."""

    parts: Annotated[list[Part], Field(max_length=3)]
    count: Count
    ids: Hexadecimal
    form: tuple[Literal["whole", "padded", "mixed", "text"], Count]


@with_config(STRICT)
class AlignmentOrder(TypedDict):
    """The server lets the sites find their common rows."""

    session: Hexadecimal
    names: Members
    seconds: Seconds


@with_config(STRICT)
class SessionNote(TypedDict):
    """Beside what one site sends another during the alignment."""

    session: Hexadecimal


@with_config(STRICT)
class SummaryState(TypedDict):
    """The counts and sums of one column, see `data.encode.ColumnSummary`."""

    kind: Literal["number", "text", "empty"]
    rows: Count
    missing: Count
    moments: Moments | None
    values: list[tuple[Finite, Count]]
    rounded: bool
    counts: list[tuple[Text, Count]]
    different: Count
    dates: dict[Name, Moments]
    unique: bool
    powers: tuple[Count, int, int] | None


@with_config(STRICT)
class TermsOrder(TypedDict):
    """The server tells a site the run and the sites that take part in it."""

    config: Annotated[str, Field(max_length=10**7)]
    names: Members


@with_config(STRICT)
class TermsAnswer(TypedDict):
    """A site agrees, and tells its version of the package."""

    package: Name


@with_config(STRICT)
class FactsQuestion(TypedDict):
    """The server asks a site to describe its data; what is needed follows from the terms."""


@with_config(STRICT)
class FactsAnswer(TypedDict):
    """What a site tells of its data, see `site.rows` and `site.hidden_census`."""

    package: Name
    rows: Count
    all_rows: Count
    held: Count
    calibration: NotRequired[Count]
    features: Names
    array: bool
    dtype: Literal[DTYPES]  # type: ignore[valid-type]
    scale: Finite | None
    labelled: bool
    labels: NotRequired[Values]
    groups: NotRequired[dict[Name, Values]]
    summaries: NotRequired[dict[Name, SummaryState]]
    target: NotRequired[SummaryState]
    most: NotRequired[Whole]
    ids: NotRequired[Hexadecimal]
    y: NotRequired[Hexadecimal]
    cells: NotRequired[Hexadecimal]
    test_rows: NotRequired[Annotated[list[Count], Field(max_length=MOST_ROWS)]]
    encoded: NotRequired[Names]
    categories: NotRequired[Categories]
    encodes: NotRequired[Names]
    bytes: NotRequired[bool]


@with_config(STRICT)
class CountQuestion(TypedDict):
    """The server asks how many rows have which label and groups."""

    labels: Values
    groups: dict[Name, Values]


@with_config(STRICT)
class CountAnswer(TypedDict):
    """The numbers of rows of the groups that a site has."""

    counts: Annotated[list[tuple[Annotated[list[Count], Field(max_length=64)], Count]], SOME]


@with_config(STRICT)
class CensusStep(TypedDict):
    """The server asks for one of the hidden sums of a census, see `site.hidden_census`."""

    step: Literal["buckets", "words", "numbers"]
    cells: NotRequired[Count]
    words: NotRequired[dict[Name, Annotated[list[Text], SOME]]]
    labels: NotRequired[Values]
    groups: NotRequired[dict[Name, Values]]


@with_config(STRICT)
class CensusNote(TypedDict):
    """What all parties know of each other's data, see `deploy.census.Census`."""

    names: Members
    columns: bool
    sizes: Annotated[list[Count], Field(min_length=1, max_length=MOST_SITES)]
    widths: Annotated[list[Count], Field(min_length=1, max_length=MOST_SITES)]
    features: Names
    labels: Values
    encoder: dict[Name, Any] | None
    scale: Finite
    extra: dict[Name, list[Text] | None]
    counts: list[Annotated[list[Finite], Field(min_length=2)]]
    dtype: Literal[DTYPES]  # type: ignore[valid-type]
    test_rows: Annotated[list[Count], Field(max_length=MOST_ROWS)]
    held: Count
    left_out: list[Count]
    calibration: list[Count]
    cells: list[Hexadecimal]
    target: Annotated[list[Finite], Field(max_length=2)]
    categories: Categories


@with_config(STRICT)
class PrepareOrder(TypedDict):
    """The server lets a site build the problem."""

    config: Annotated[str, Field(max_length=10**7)]
    census: CensusNote


@with_config(STRICT)
class PrepareAnswer(TypedDict):
    """The fingerprint of the problem that a site has built, and its commitment to rows."""

    fingerprint: Hexadecimal
    commitment: NotRequired[Hexadecimal]


@with_config(STRICT)
class SignOrder(TypedDict):
    """The server asks a site to sign the certificate of a run."""

    statement: Annotated[str, Field(max_length=10**7)]


@with_config(STRICT)
class FreshQuestion(TypedDict):
    """The server asks for new rows."""

    label: Name | Names


@with_config(STRICT)
class ToldIds(TypedDict):
    """The ids of new rows, if a site shares them."""

    column: Name
    cells: Annotated[list[Value], Field(max_length=MOST_ROWS)]


@with_config(STRICT)
class FreshAnswer(TypedDict):
    """The new rows of a site."""

    rows: Count
    ids: Hexadecimal
    told: NotRequired[ToldIds]


ALIGNING = ("align/open", "align/turn", "align/keep", "align/agree")
REQUESTS: dict[str, Any] = {
    "terms": TypeAdapter(TermsOrder),
    "count": TypeAdapter(CountQuestion),
    "census/reply": TypeAdapter(CensusStep),
    "ids": TypeAdapter(IdsQuestion),
    "facts": TypeAdapter(FactsQuestion),
    "prepare": TypeAdapter(PrepareOrder),
    "fresh": TypeAdapter(FreshQuestion),
    "sign": TypeAdapter(SignOrder),
    **dict.fromkeys(ALIGNING, TypeAdapter(AlignmentOrder)),
}
"""The notes of the server's envelopes by kind; envelopes of other kinds have none."""
ANSWERS: dict[str, Any] = {
    "error": TypeAdapter(ErrorNote),
    "terms": TypeAdapter(TermsAnswer),
    "count": TypeAdapter(CountAnswer),
    "ids": TypeAdapter(IdsAnswer),
    "facts": TypeAdapter(FactsAnswer),
    "prepare": TypeAdapter(PrepareAnswer),
    "fresh": TypeAdapter(FreshAnswer),
}
"""The notes of the sites' answers by kind."""
PEERS: dict[str, Any] = {"align": TypeAdapter(SessionNote)}
"""The notes of envelopes between sites by kind."""


def check_request(envelope: Envelope) -> Envelope:
    """The server's envelope, unless its note is not what its kind needs (`InvalidMessage`)."""
    return _checked(REQUESTS, envelope)


def check_answer(envelope: Envelope) -> Envelope:
    """A site's answer, unless its note is not what its kind needs (`InvalidMessage`)."""
    return _checked(ANSWERS, envelope)


def check_peer(envelope: Envelope) -> Envelope:
    """A peer's envelope, unless its note is not what its kind needs (`InvalidMessage`)."""
    return _checked(PEERS, envelope)


def one_line(text: str) -> str:
    """The text as one line of printable characters, of the length that an error may have."""
    words = " ".join(text.split())
    return "".join(c if c.isprintable() else "?" for c in words[:LONGEST_LINE])


def _checked(schemas: Mapping[str, Any], envelope: Envelope) -> Envelope:
    schema = schemas.get(envelope.kind)
    if schema is None:
        if NOTE in envelope.arrays:
            raise InvalidMessage(f"a message {envelope.kind[:40]!r} has no note")
        return envelope
    try:
        schema.validate_json(note_text(envelope))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(step)[:40] for step in first["loc"][:4]) or "it"
        raise InvalidMessage(
            one_line(f"the note of {envelope.kind!r} is refused: {where}: {first['msg']}")
        ) from None
    return envelope
