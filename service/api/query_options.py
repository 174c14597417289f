"""What queries ask for: options, and filters as the API page shows (the index parses them)."""

from typing import Annotated, Final, Literal

from pydantic import Field

from gcws_search import index as ix
from gcws_search.service.models import Body, Document, ShownAs, bounds, examples

OnError = Annotated[
    Literal["stop", "skip"],
    Field(
        description="At a query whose vector or parameters are invalid: `stop` answers none; "
        "`skip` gives it no hits and an `error`, and answers all others."
    ),
]


class ValueBody(Body):
    """Holds where the key has this scalar: 3 is 3.0, but neither "3" nor true."""

    value: str | bool | int | float = Field(description="The scalar.")


class AnyBody(Body):
    """Holds where the key has one of these scalars."""

    any: list[str | bool | int | float] = Field(description="The scalars; none: never holds.")


class BoundsBody(Body):
    """Holds where the key has a number within all bounds that are given, at least one."""

    gt: float | None = Field(default=None, description="The number is above this.")
    gte: float | None = Field(default=None, description="The number is this or above.")
    lt: float | None = Field(default=None, description="The number is below this.")
    lte: float | None = Field(default=None, description="The number is this or below.")


_KEY: Final = (
    "Key of the payload; dots reach into objects: `size.width`. A list stands for each of its "
    "elements; one that fits is enough. A key that is missing does not fit."
)


class MatchBody(Body):
    """A condition: the key's value equals one that is given."""

    key: str = Field(description=_KEY, min_length=1, max_length=1024)
    match: ValueBody | AnyBody = Field(description="One value, or several; one match is enough.")


class RangeBody(Body):
    """A condition: the key's value is a number between bounds."""

    key: str = Field(description=_KEY, min_length=1, max_length=1024)
    range: BoundsBody = Field(description="The bounds.")


class FilterBody(Body):
    """A condition on payloads; a filter may stand for a condition within another, 8 deep."""

    model_config = examples(
        {"must": [{"key": "label", "match": {"value": 3}}]},
        {
            "should": [
                {"key": "tags", "match": {"any": ["x", "z"]}},
                {"key": "price", "range": {"gt": 1, "lte": 2.5}},
            ]
        },
        {
            "must": [
                {"key": "size.width", "range": {"gte": 10}},
                {
                    "should": [
                        {"key": "sold", "match": {"value": False}},
                        {"key": "label", "match": {"value": "new"}},
                    ]
                },
            ],
            "must_not": {"key": "label", "match": {"value": 1}},
        },
    )

    must: "Clause" = Field(default=None, description="All of these hold.")
    should: "Clause" = Field(default=None, description="At least one of these, where any is given.")
    must_not: "Clause" = Field(default=None, description="None of these holds.")


Condition = MatchBody | RangeBody | FilterBody
Clause = list[Condition] | Condition | None
FilterBody.model_rebuild()


FilterDocument = Annotated[Document, ShownAs(FilterBody)]

Limit = Annotated[
    int,
    Field(
        description="How many hits; at most the server's `max_limit`, 100,000 unless set.",
        json_schema_extra=bounds(1),
    ),
]
Offset = Annotated[
    int,
    Field(
        description="Hits of the ranking that are left out before the first one shown. `offset` "
        "and `limit` together are at most `max_limit`. Pages of one `limit` share no hit and leave "
        "none out.",
        json_schema_extra=bounds(0),
    ),
]
Recall = Annotated[
    float,
    Field(
        description="Expected share of the true hits, in (0, 1]; 1 is an exact scan.",
        json_schema_extra={"exclusiveMinimum": 0, "maximum": 1},
    ),
]
MinScore = Annotated[
    float,
    Field(
        description="Hits below this score are not wanted, in [0, 1]. At 0, items that share "
        "nothing with the query may be returned too, with score 0.",
        json_schema_extra=bounds(0, 1),
    ),
]
Guarantee = Annotated[
    ix.Guarantee,
    Field(
        description="In which sense `recall` is promised. `measured`: as the mean over queries "
        "like the collection's own items, by calibration; the quickest. `proven`: as this query's "
        "expected share, by the collision law, whatever the data. Where `band_width` is a number, "
        "`measured` returns what the tables hold, and `proven` turns to a scan where that is not "
        "enough."
    ),
]
WithPayload = Annotated[bool, Field(description="Show the hits' payloads.")]
WithVector = Annotated[bool, Field(description="Show the hits' vectors.")]
BackendName = Annotated[
    str | None,
    Field(
        description="Name of one of the collection's `backends`; null: the one it was created "
        "with, whose name is its `kind`. Any other: 404."
    ),
]
Rerank = Annotated[
    ix.Rerank,
    Field(
        description="How hits are scored, and ranked by it: `gmm`, the exact GMM; `own`, the "
        "exact kernel that the backend estimates; `none`, its own estimate. `exact` gives the "
        "exact GMM always."
    ),
]
Candidates = Annotated[
    int | None,
    Field(
        description="How many of the best by a comparison backend's estimate are scored exactly; "
        "null: 100, or 10 times `limit`.",
        json_schema_extra=bounds(1),
    ),
]
Explain = Annotated[bool, Field(description="Say what the query cost.")]
AllowPartial = Annotated[
    bool,
    Field(
        description="In a cluster: answer without the shards that gave no answer in time, and say "
        "which, rather than not at all."
    ),
]
Consistency = Annotated[
    Literal["session", "strict"],
    Field(
        description="In a cluster: `session` finds what was acknowledged by the process that is "
        "asked, `strict` what was acknowledged by any. One process alone is always strict."
    ),
]
