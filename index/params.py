"""Parameters of collections, backends and searches: frozen, validated when made."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from index.errors import InvalidParameter

Form = Literal["dense", "sparse"]
Normalize = Literal["none", "l1", "l2"]
Encoding = Literal["full", "zero_bit", "b_bit"]
Guarantee = Literal["measured", "proven"]

MAX_DIM: Final = 2**31 - 1
"""Slots are numbered in 32 bits, signed."""
MAX_DENSE_DIM: Final = 4096
"""Up to this many dimensions rows are kept dense in memory; above it, and when open, sparse."""
MAX_CENTER: Final = 1e38
"""Largest coordinate of a centre; NaN and infinities are beyond it."""
KEY_BITS: Final = 64


def _require(holds: bool, *, name: str, expected: str, got: object) -> None:
    if not holds:
        raise InvalidParameter(expected=expected, got=repr(got), loc=(name,))


@dataclass(frozen=True, kw_only=True, slots=True)
class Transform:
    """What is done to a vector before anything else, in this order.

    Parameters
    ----------
    center : tuple of float or None
        μ, subtracted from every vector (length ``dim``).
    power : float
        p > 0: every entry x becomes sign(x)·|x|^p (pGMM).
    normalize : {"none", "l1", "l2"}
        Divide by this norm at the end.
    """

    center: tuple[float, ...] | None = None
    power: float = 1.0
    normalize: Normalize = "none"

    def __post_init__(self) -> None:
        """Raise InvalidParameter when a field is outside its range."""
        _require(0 < self.power <= 64, name="power", expected="a number in (0, 64]", got=self.power)
        _require(
            self.normalize in ("none", "l1", "l2"),
            name="normalize", expected="'none', 'l1' or 'l2'", got=self.normalize,
        )  # fmt: skip
        for value in self.center or ():
            _require(
                abs(value) <= MAX_CENTER,
                name="center", expected=f"numbers of at most {MAX_CENTER:g} in size", got=value,
            )  # fmt: skip

    @property
    def is_identity(self) -> bool:
        """Whether vectors stay as they are."""
        return self.center is None and self.power == 1.0 and self.normalize == "none"


@dataclass(frozen=True, kw_only=True, slots=True)
class GcwsParams:
    """A GCWS hash-table index.

    Parameters
    ----------
    bands : int
        Number of tables, 1-256.
    band_width : int or None
        None: depth is chosen per query by its recall target. A number: classical banding, every
        band that many samples wide.
    encoding : {"full", "zero_bit", "b_bit"}
        What of a sample (i*, t*) goes into a key: both, i* alone, or its lowest ``bits`` bits.
    bits : int
        b of ``b_bit``, 1-16.
    seed : int
        Seed of all randomness, 0 to 2^63 - 1.
    """

    bands: int = 32
    band_width: int | None = None
    encoding: Encoding = "full"
    bits: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        """Raise InvalidParameter when a field is outside its range."""
        _require(1 <= self.bands <= 256, name="bands", expected="1 to 256", got=self.bands)
        _require(
            self.band_width is None or 1 <= self.band_width <= 64,
            name="band_width", expected="null or 1 to 64", got=self.band_width,
        )  # fmt: skip
        _require(
            self.encoding in ("full", "zero_bit", "b_bit"),
            name="encoding", expected="'full', 'zero_bit' or 'b_bit'", got=self.encoding,
        )  # fmt: skip
        _require(1 <= self.bits <= 16, name="bits", expected="1 to 16", got=self.bits)
        _require(0 <= self.seed < 2**63, name="seed", expected="0 to 2^63 - 1", got=self.seed)

    @property
    def kind(self) -> Literal["gcws"]:
        """The word that names this backend in the API."""
        return "gcws"


@dataclass(frozen=True, kw_only=True, slots=True)
class ExactParams:
    """No index: every query scans all items."""

    @property
    def kind(self) -> Literal["exact"]:
        """The word that names this backend in the API."""
        return "exact"


BackendParams = GcwsParams | ExactParams
_KINDS: Final[dict[str, type[GcwsParams] | type[ExactParams]]] = {
    "gcws": GcwsParams,
    "exact": ExactParams,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectionConfig:
    """All that must stay fixed for the hashes of one collection to be comparable.

    Parameters
    ----------
    dim : int or None
        Number of coordinates; None for an open slot space (sparse vectors only).
    transform : Transform
    backend : GcwsParams or ExactParams
    """

    dim: int | None
    transform: Transform = field(default_factory=Transform)
    backend: BackendParams = field(default_factory=GcwsParams)

    def __post_init__(self) -> None:
        """Raise InvalidParameter when a field is outside its range or fields disagree."""
        _require(
            self.dim is None or 1 <= self.dim <= MAX_DIM,
            name="dim", expected=f"null or 1 to {MAX_DIM}", got=self.dim,
        )  # fmt: skip
        center = self.transform.center
        if center is not None:
            _require(
                self.form == "dense",
                name="center", expected=f"null unless dim is at most {MAX_DENSE_DIM}",
                got=f"{len(center)} values with dim {self.dim}",
            )  # fmt: skip
            _require(
                len(center) == self.dim,
                name="center", expected=f"{self.dim} values", got=f"{len(center)} values",
            )  # fmt: skip

    @property
    def form(self) -> Form:
        """How rows are kept in memory."""
        return "dense" if self.dim is not None and self.dim <= MAX_DENSE_DIM else "sparse"

    def to_dict(self) -> dict[str, Any]:
        """Return the configuration in the API's own JSON form."""
        transform = asdict(self.transform)
        if self.transform.center is not None:
            transform["center"] = list(self.transform.center)
        return {
            "dim": self.dim,
            "transform": transform,
            "backend": {"kind": self.backend.kind, "params": asdict(self.backend)},
        }

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> CollectionConfig:
        """Inverse of `to_dict`."""
        transform = dict(document["transform"])
        if transform["center"] is not None:
            transform["center"] = tuple(transform["center"])
        backend = document["backend"]
        return cls(
            dim=document["dim"],
            transform=Transform(**transform),
            backend=_KINDS[backend["kind"]](**backend["params"]),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchParams:
    """What a query asks for.

    Parameters
    ----------
    limit : int
        How many hits, at least 1.
    recall : float
        Expected share of the true hits, in (0, 1]; 1 is an exact scan.
    min_score : float
        Hits below this GMM similarity are not wanted, in [0, 1].
    guarantee : {"measured", "proven"}
    """

    limit: int = 10
    recall: float = 0.9
    min_score: float = 0.0
    guarantee: Guarantee = "measured"

    def __post_init__(self) -> None:
        """Raise InvalidParameter when a field is outside its range."""
        _require(self.limit >= 1, name="limit", expected="at least 1", got=self.limit)
        _require(
            0 < self.recall <= 1, name="recall", expected="a number in (0, 1]", got=self.recall
        )
        _require(
            0 <= self.min_score <= 1,
            name="min_score", expected="a number in [0, 1]", got=self.min_score,
        )  # fmt: skip
