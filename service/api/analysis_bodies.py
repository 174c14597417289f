"""Bodies and answers of what shows a whole collection."""

from typing import Annotated, ClassVar

from pydantic import Field

from gcws_search import index as ix
from gcws_search.service.api.query_options import FilterDocument
from gcws_search.service.http.models import (
    Answer,
    Body,
    FirstErrorOnly,
    Id,
    VectorBody,
    bounds,
    examples,
)


class MapBody(Body):
    """What a map shows."""

    without_body = b"{}"
    limited: ClassVar = {"also": ix.MAX_ALSO}

    model_config = examples(
        {"sample": 3},
        {
            "sample": 5000,
            "landmarks": 256,
            "seed": 0,
            "filter": {"must": [{"key": "label", "match": {"value": 3}}]},
            "also": ["a", [0.1, -2, 0, 3], {"indices": [1], "values": [-2]}],
            "key": "label",
        },
    )

    sample: int = Field(
        default=ix.MAP_SAMPLE,
        description="Items at most, drawn at random; all, where there are no more.",
        json_schema_extra=bounds(1, ix.MAX_MAP_SAMPLE),
    )
    landmarks: int = Field(
        default=ix.LANDMARKS,
        description="Items of the sample that the axes are learned from.",
        json_schema_extra=bounds(2, ix.MAX_LANDMARKS),
    )
    seed: int = Field(
        default=0,
        description="Of the choice of the sample and its landmarks.",
        json_schema_extra=bounds(0),
    )
    filter: FilterDocument | None = Field(
        default=None, description="Only items whose payloads pass are drawn; null: all."
    )
    also: Annotated[list[Id | VectorBody], FirstErrorOnly()] = Field(
        default=[],
        description="Ids and vectors that are given places and neighbours too.",
        json_schema_extra={"maxItems": ix.MAX_ALSO},
    )
    key: str | None = Field(
        default=None,
        min_length=1,
        max_length=1024,
        description="Payload key whose values are shown; dots reach into objects.",
    )


class PlacesAnswer(Answer):
    """Where vectors lie, and what of the sample lies nearest to each; a list a column."""

    x: list[float] = Field(description="Place on the first axis, along which items differ most.")
    y: list[float] = Field(description="Place on the second axis.")
    neighbours: list[list[int]] = Field(
        description="Numbers of the most similar items of the sample, at most 15, the most "
        "similar first. No item is its own neighbour."
    )
    scores: list[list[float]] = Field(description="Their exact GMM similarities.")


class MapAnswer(PlacesAnswer):
    """A sample in a plane, in the order in which its items were put."""

    model_config = examples(
        {
            "ids": ["a", "7"],
            "x": [0.31, -0.31],
            "y": [0.0, 0.0],
            "neighbours": [[1], [0]],
            "scores": [[0.12], [0.12]],
            "values": [3, None],
            "also": {"x": [0.31], "y": [0.0], "neighbours": [[1]], "scores": [[0.12]]},
        },
    )

    ids: list[str] = Field(description="The sample.")
    values: list[bool | float | str | None] | None = Field(
        default=None,
        description="With `key`: the first scalar under it of each payload, a text cut to 255 "
        "characters; null where there is none.",
    )
    also: PlacesAnswer = Field(description="Of what `also` asked for, in its order.")


class ProfileBody(Body):
    """What a profile is of."""

    without_body = b"{}"

    model_config = examples(
        {},
        {"sample": 1000, "seed": 0},
    )

    sample: int = Field(
        default=ix.PROFILE_SAMPLE,
        description="Items at most that are looked at, drawn at random.",
        json_schema_extra=bounds(1, ix.MAX_PROFILE_SAMPLE),
    )
    seed: int = Field(
        default=0,
        description="Of the choice of the sample and the pairs.",
        json_schema_extra=bounds(0),
    )


class HistogramAnswer(Answer):
    """How many values lie between two edges."""

    edges: list[float] = Field(description="Rising, one more than `counts`.")
    counts: list[int] = Field(
        description="Values from one edge on and below the next; the last edge counts below."
    )


class BucketAnswer(Answer):
    """One bucket."""

    size: int = Field(description="How many items it has.")
    id: str = Field(description="One of them.")


class DepthAnswer(Answer):
    """What one depth of the hash tables does."""

    samples: int = Field(description="How many samples the items of a bucket share.")
    probabilities: list[float] = Field(
        description="The S-curve: for each of `similarities` at least the chance that a pair "
        "shares a bucket in some band."
    )
    buckets: int = Field(description="Buckets of the first table.")
    mean_size: float = Field(
        description="Items of the bucket that an item lies in, on average over the items."
    )
    largest: list[BucketAnswer] = Field(description="At most ten, the largest first.")


class ProfileAnswer(Answer):
    """What a sample of items tells of a collection, under its transform."""

    model_config = examples(
        {
            "items": 3,
            "sample": 3,
            "pairs": {"edges": [0.0, 0.5, 1.0], "counts": [20, 10]},
            "first": {"edges": [0.0, 0.5, 1.0], "counts": [1, 2]},
            "tenth": {"edges": [0.0, 0.5, 1.0], "counts": [0, 0]},
            "nonzeros": {"edges": [2.0, 3.0, 4.0], "counts": [1, 2]},
            "negative": 0.375,
            "similarities": [0.0, 0.5, 1.0],
            "depths": [
                {
                    "samples": 1,
                    "probabilities": [0.873, 1.0, 1.0],
                    "buckets": 2,
                    "mean_size": 1.667,
                    "largest": [{"size": 2, "id": "a"}, {"size": 1, "id": "7"}],
                }
            ],
        },
    )

    items: int = Field(description="Of the collection.")
    sample: int = Field(description="Items that were looked at.")
    pairs: HistogramAnswer = Field(
        description="GMM of random pairs: an item of the sample and ten random ones but itself."
    )
    first: HistogramAnswer = Field(
        description="Exact GMM of an item and its nearest, as searches of recall 0.95 find it; in "
        "a large collection of a part of the sample."
    )
    tenth: HistogramAnswer = Field(description="The same of its tenth nearest.")
    nonzeros: HistogramAnswer = Field(description="Coordinates of an item that are not zero.")
    negative: float = Field(description="Share of these that are below zero.")
    similarities: list[float] = Field(description="Where the S-curves are taken.")
    depths: list[DepthAnswer] = Field(
        description="From one sample on; one depth where `band_width` is set, none where the "
        "backend does not hash."
    )
