"""Bodies that name a search method and its parameters; the index holds them to their ranges."""

from typing import Annotated, Any, Final, Literal, get_args

from pydantic import Discriminator, Field, Tag

from gcws_search import index as ix
from gcws_search.service.http.models import Body, ShownAs, bounds, examples
from gcws_search.service.http.problems import KIND

_ABOVE_0: Final = {"exclusiveMinimum": 0}
Seed = Annotated[
    int,
    Field(description="Seed of all randomness, 0 to 2^63 - 1.", json_schema_extra=bounds(0)),
]
Gamma = Annotated[
    float,
    Field(
        description="γ of the RBF kernel e^(-γ(1 - cosine)), above 0 and at most 1e6.",
        json_schema_extra=_ABOVE_0 | {"maximum": 1e6},
    ),
]
Landmarks = Annotated[
    int,
    Field(
        description="How many items are landmarks; at most as many as there are. Until a "
        "collection created with this backend has that many, queries scan.",
        json_schema_extra=bounds(1, 4096),
    ),
]


class GcwsParamsBody(Body):
    """Parameters of the hash tables."""

    model_config = examples(
        {"bands": 32, "band_width": None, "encoding": "full", "bits": 8, "seed": 0},
    )

    bands: int = Field(
        default=32,
        description="Number of tables. With `band_width` null the first 8 are made from the start, "
        "the others once there is use for them.",
        json_schema_extra=bounds(1, 256),
    )
    band_width: int | None = Field(
        default=None,
        description="Samples of every band, 1 to 64; null: depth is chosen per query.",
        json_schema_extra=bounds(1, 64),
    )
    encoding: ix.Encoding = Field(
        default="full",
        description="What of a sample (i*, t*) goes into a key: "
        "both, i* alone, or `bits` bits of it.",
    )
    bits: int = Field(default=8, description="b of `b_bit`.", json_schema_extra=bounds(1, 16))
    seed: Seed = 0


class ExactParamsBody(Body):
    """The exact scan has no parameters."""

    model_config = examples(
        {},
    )


class FourierParamsBody(Body):
    """Parameters of cosine features."""

    model_config = examples(
        {"features": 512, "gamma": 1.0, "seed": 0},
    )

    features: int = Field(
        default=512, description="Numbers kept of each item.", json_schema_extra=bounds(1, 16384)
    )
    gamma: Gamma = 1.0
    seed: Seed = 0


class RandomBinningParamsBody(Body):
    """Parameters of random bins."""

    model_config = examples(
        {"distribution": "gamma", "shape": 2.0, "scale": 1.0, "bands": 32, "seed": 0},
        {"distribution": "rayleigh", "scale": 0.5},
    )

    distribution: ix.Distribution = Field(
        default="gamma",
        description="Of the pitches of bins; it says which kernel is estimated. `gamma` of shape "
        "2: the Laplace kernel.",
    )
    shape: float | None = Field(
        default=None,
        description="Shape of the distribution, at most 1e6: s > 0 of `gamma` (2), ν > 0 of "
        "`chi_square` (4) and `chi` (3), m ≥ 0.5 of `nakagami` (1), κ ≥ 0.05 of `weibull` (2), "
        "μ > 0 of `shifted_poisson` (1); the others have none. null: the number in brackets.",
        json_schema_extra=_ABOVE_0 | {"maximum": 1e6},
    )
    scale: float = Field(
        default=1.0,
        description="Mean pitch, in the units of the transformed vectors: above 0, at most 1e9.",
        json_schema_extra=_ABOVE_0 | {"maximum": 1e9},
    )
    bands: int = Field(
        default=32, description="Number of tables.", json_schema_extra=bounds(1, 256)
    )
    seed: Seed = 0


class GmmNystroemParamsBody(Body):
    """Parameters of features learned from landmarks."""

    model_config = examples(
        {"landmarks": 256, "seed": 0},
    )

    landmarks: Landmarks = 256
    seed: Seed = 0


class RbfNystroemParamsBody(Body):
    """Parameters of features learned from landmarks under the RBF kernel."""

    model_config = examples(
        {"landmarks": 256, "gamma": 1.0, "seed": 0},
    )

    landmarks: Landmarks = 256
    gamma: Gamma = 1.0
    seed: Seed = 0


class GcwsBackendBody(Body):
    """Hash tables over GCWS samples: GMM."""

    model_config = examples(
        {"kind": "gcws", "params": {"bands": 16, "seed": 7}},
    )

    kind: Literal["gcws"] = Field(default="gcws", description="The method.")
    params: GcwsParamsBody = Field(
        default_factory=GcwsParamsBody, description="Parameters of the tables."
    )


class ExactBackendBody(Body):
    """No index: every query scans all items."""

    model_config = examples(
        {"kind": "exact", "params": {}},
    )

    kind: Literal["exact"] = Field(description="The method.")
    params: ExactParamsBody = Field(default_factory=ExactParamsBody, description="None.")


class FourierBackendBody(Body):
    """A scan of cosine features of the RBF kernel: as they are, of unit length, or folded."""

    model_config = examples(
        {"kind": "nrff", "params": {"features": 1024, "gamma": 2.5}},
    )

    kind: ix.FourierKind = Field(description="The method.")
    params: FourierParamsBody = Field(
        default_factory=FourierParamsBody, description="Parameters of the features."
    )


class RandomBinningBackendBody(Body):
    """Hash tables over random bins: a product kernel of Polya's class."""

    model_config = examples(
        {"kind": "random_binning", "params": {"distribution": "weibull", "shape": 2.0}},
    )

    kind: Literal["random_binning"] = Field(description="The method.")
    params: RandomBinningParamsBody = Field(
        default_factory=RandomBinningParamsBody, description="Parameters of the bins."
    )


class GmmNystroemBackendBody(Body):
    """A scan of features learned from landmarks: GMM."""

    model_config = examples(
        {"kind": "gmm_nystroem", "params": {"landmarks": 128}},
    )

    kind: Literal["gmm_nystroem"] = Field(description="The method.")
    params: GmmNystroemParamsBody = Field(
        default_factory=GmmNystroemParamsBody, description="Parameters of the features."
    )


class RbfNystroemBackendBody(Body):
    """A scan of features learned from landmarks: the RBF kernel."""

    model_config = examples(
        {"kind": "rbf_nystroem", "params": {"landmarks": 128, "gamma": 2.5}},
    )

    kind: Literal["rbf_nystroem"] = Field(description="The method.")
    params: RbfNystroemParamsBody = Field(
        default_factory=RbfNystroemParamsBody, description="Parameters of the features."
    )


_BODIES: Final[tuple[type[Body], ...]] = (
    GcwsBackendBody,
    ExactBackendBody,
    FourierBackendBody,
    RandomBinningBackendBody,
    GmmNystroemBackendBody,
    RbfNystroemBackendBody,
)
BODY_OF: Final[dict[str, type[Body]]] = {
    kind: body for body in _BODIES for kind in get_args(body.model_fields["kind"].annotation)
}
"""The body of each kind."""


def _tag(value: object) -> str | None:
    """Return the name of the body that a value's ``kind`` asks for."""
    kind = value.get("kind", "gcws") if isinstance(value, dict) else getattr(value, "kind", None)
    body = BODY_OF.get(kind) if isinstance(kind, str) else None
    return None if body is None else KIND + body.__name__


BackendBody = Annotated[
    Annotated[GcwsBackendBody, Tag(f"{KIND}GcwsBackendBody")]
    | Annotated[ExactBackendBody, Tag(f"{KIND}ExactBackendBody")]
    | Annotated[FourierBackendBody, Tag(f"{KIND}FourierBackendBody")]
    | Annotated[RandomBinningBackendBody, Tag(f"{KIND}RandomBinningBackendBody")]
    | Annotated[GmmNystroemBackendBody, Tag(f"{KIND}GmmNystroemBackendBody")]
    | Annotated[RbfNystroemBackendBody, Tag(f"{KIND}RbfNystroemBackendBody")],
    Discriminator(
        _tag,
        custom_error_type="unknown_kind",
        custom_error_message=f"expected an object with kind {' or '.join(map(repr, BODY_OF))}",
    ),
]
Kind = Literal[
    "gcws", "exact", "rff", "nrff", "folded_rff", "random_binning", "gmm_nystroem", "rbf_nystroem"
]


class _AnyParamsBody(Body):
    """Stands for the parameters of any kind."""

    params: (
        GcwsParamsBody
        | ExactParamsBody
        | FourierParamsBody
        | RandomBinningParamsBody
        | GmmNystroemParamsBody
        | RbfNystroemParamsBody
    )


class AttachBody(Body):
    """A comparison backend to be made from the stored vectors."""

    model_config = examples(
        {"kind": "nrff"},
        {"kind": "gcws", "name": "one_bit", "params": {"encoding": "b_bit", "bits": 1}},
        {"kind": "random_binning", "params": {"distribution": "rayleigh", "scale": 4.0}},
        {"kind": "gmm_nystroem", "params": {"landmarks": 2}},
    )

    kind: Kind = Field(description="The method.")
    name: str | None = Field(
        default=None,
        description="What queries call it; null: its kind, or `nrff_2` and so on where that is "
        "taken.",
        json_schema_extra={"minLength": 1, "maxLength": 128},
    )
    params: Annotated[dict[str, Any], ShownAs(_AnyParamsBody, "params")] = Field(
        default_factory=dict, description="Parameters of its kind."
    )
