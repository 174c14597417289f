"""Parameters of collections, backends and searches: frozen, validated when made."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from numbers import Integral, Real
from typing import Any, Final, Literal, get_args, get_type_hints

from gcws_search.index.contracts.backend_parameters import (
    FOURIER_KINDS,
    NYSTROEM_KINDS,
    SHAPES,
    BackendParams,
    Distribution,
    Encoding,
    ExactParams,
    FourierKind,
    FourierParams,
    GcwsParams,
    NystroemKind,
    NystroemParams,
    RandomBinningParams,
    require,
)

__all__ = [
    "BACKEND_KINDS",
    "FOURIER_KINDS",
    "KEY_BITS",
    "MAX_CENTER",
    "MAX_DENSE_DIM",
    "MAX_DIM",
    "MIN_POOL",
    "NYSTROEM_KINDS",
    "POOL_SHARE",
    "SHAPES",
    "BackendParams",
    "CollectionConfig",
    "Distribution",
    "Encoding",
    "ExactParams",
    "Form",
    "FourierKind",
    "FourierParams",
    "GcwsParams",
    "Guarantee",
    "Normalize",
    "NystroemKind",
    "NystroemParams",
    "RandomBinningParams",
    "Rerank",
    "SearchParams",
    "Storage",
    "Transform",
    "backend_document",
    "backend_params",
]

Form = Literal["dense", "sparse"]
Storage = Literal["memory", "mapped"]
Normalize = Literal["none", "l1", "l2"]
Guarantee = Literal["measured", "proven"]
Rerank = Literal["gmm", "own", "none"]

MAX_DIM: Final = 2**31 - 1
"""Slots are numbered in 32 bits, signed."""
MAX_DENSE_DIM: Final = 4096
"""Up to this many dimensions rows are kept dense in memory; above it, and when open, sparse."""
MAX_CENTER: Final = 1e38
"""Largest coordinate of a centre; NaN and infinities are beyond it."""
KEY_BITS: Final = 64
MIN_POOL: Final = 100
POOL_SHARE: Final = 10


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
        require(0 < self.power <= 64, name="power", expected="a number in (0, 64]", got=self.power)
        require(
            self.normalize in ("none", "l1", "l2"),
            name="normalize",
            expected="'none', 'l1' or 'l2'",
            got=self.normalize,
        )
        for value in self.center or ():
            require(
                abs(value) <= MAX_CENTER,
                name="center",
                expected=f"numbers of at most {MAX_CENTER:g} in size",
                got=value,
            )

    @property
    def is_identity(self) -> bool:
        """Whether vectors stay as they are."""
        return self.center is None and self.power == 1.0 and self.normalize == "none"


BACKEND_KINDS: Final = (
    "gcws",
    "exact",
    *FOURIER_KINDS,
    "random_binning",
    *NYSTROEM_KINDS,
)
"""The words that name backends in the API."""


def backend_document(params: BackendParams) -> dict[str, Any]:
    """Return parameters of a backend in the API's own JSON form: its kind and its ``params``."""
    fields = asdict(params)
    fields.pop("kind", None)
    if params.kind == "gmm_nystroem":
        del fields["gamma"]  # of rbf_nystroem alone
    return {"kind": params.kind, "params": fields}


_TYPE_NAMES: Final = {
    int: "a whole number",
    float: "a number",
    str: "a string",
    type(None): "null",
}


def _require_types(params_class: type[Any], given: dict[str, Any]) -> None:
    """Raise InvalidParameter unless each value is of a type that its field of a class has."""
    types = get_type_hints(params_class)
    for name, value in given.items():
        permitted = get_args(types[name]) or (types[name],)
        if str in map(type, permitted):  # a literal, whose class looks which words there are
            permitted = (str,)
        if float in permitted:
            permitted += (int,)
        holds = type(value) in permitted
        expected = " or ".join(sorted({_TYPE_NAMES[each] for each in permitted}))
        require(holds, name=name, expected=expected, got=value)


def _is_whole(value: object) -> bool:
    return type(value) is int or (isinstance(value, Integral) and not isinstance(value, bool))


def _is_number(value: object) -> bool:
    return type(value) is float or (isinstance(value, Real) and not isinstance(value, bool))


def backend_params(kind: str, params: dict[str, Any]) -> BackendParams:
    """Inverse of `backend_document`; what is missing has its default.

    Raises
    ------
    InvalidParameter
        There is no such kind or parameter, or it is outside its range, or of another type.
    """
    expected = f"one of {', '.join(BACKEND_KINDS)}"
    require(kind in BACKEND_KINDS, name="kind", expected=expected, got=kind)
    params_class = _CLASSES[kind]
    every = [each.name for each in fields(params_class)]
    names = [name for name in every if name != "kind"]
    if kind == "gmm_nystroem":
        names.remove("gamma")
    for name in params:
        known = f"one of {', '.join(names)}" if names else "no parameters"
        require(name in names, name=name, expected=known, got=name)
    _require_types(params_class, params)
    given: dict[str, Any] = params | ({"kind": kind} if "kind" in every else {})
    return params_class(**given)


_CLASSES: Final[dict[str, type[BackendParams]]] = {
    "gcws": GcwsParams,
    "exact": ExactParams,
    "random_binning": RandomBinningParams,
    **dict.fromkeys(FOURIER_KINDS, FourierParams),
    **dict.fromkeys(NYSTROEM_KINDS, NystroemParams),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectionConfig:
    """What a collection is made with, and has for good.

    All but ``storage`` must stay fixed for its hashes to be comparable.

    Parameters
    ----------
    dim : int or None
        Number of coordinates; None for an open slot space (sparse vectors only).
    transform : Transform
    backend : BackendParams
    storage : {"memory", "mapped"}
        Where float vectors lie: in memory, or in files that the system maps into it and drops from
        it when memory is short. All that a search reads of most rows lies in memory in any case.
    """

    dim: int | None
    transform: Transform = field(default_factory=Transform)
    backend: BackendParams = field(default_factory=GcwsParams)
    storage: Storage = "memory"

    def __post_init__(self) -> None:
        """Raise InvalidParameter when a field is outside its range or fields disagree."""
        require(
            self.dim is None or 1 <= self.dim <= MAX_DIM,
            name="dim",
            expected=f"null or 1 to {MAX_DIM}",
            got=self.dim,
        )
        require(
            self.storage in get_args(Storage),
            name="storage",
            expected="'memory' or 'mapped'",
            got=self.storage,
        )
        center = self.transform.center
        if center is not None:
            require(
                self.form == "dense",
                name="center",
                expected=f"null unless dim is at most {MAX_DENSE_DIM}",
                got=f"{len(center)} values with dim {self.dim}",
            )
            require(
                len(center) == self.dim,
                name="center",
                expected=f"{self.dim} values",
                got=f"{len(center)} values",
            )

    @property
    def form(self) -> Form:
        """How rows are kept in memory."""
        return "dense" if self.dim is not None and self.dim <= MAX_DENSE_DIM else "sparse"

    def to_dict(self) -> dict[str, Any]:
        """Return the configuration in the API's own JSON form; the usual storage is left out."""
        transform = asdict(self.transform)
        if self.transform.center is not None:
            transform["center"] = list(self.transform.center)
        return {
            "dim": self.dim,
            "transform": transform,
            "backend": backend_document(self.backend),
            **({} if self.storage == "memory" else {"storage": self.storage}),
        }

    def difference(self, other: CollectionConfig) -> str:
        """Return in words the first of all parts that another configuration has otherwise."""
        mine, others = (each.to_dict() | {"storage": each.storage} for each in (self, other))
        part = next((word for word in mine if mine[word] != others[word]), "dim")
        return f"with {part} {mine[part]}, not {others[part]}"

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> CollectionConfig:
        """Inverse of `to_dict`.

        Raises
        ------
        InvalidParameter, KeyError, TypeError, ValueError
            It is the form of no configuration.
        """
        transform = dict(document["transform"])
        storage = document.get("storage", "memory")
        _require_types(cls, {"dim": document["dim"], "storage": storage})
        center = transform.pop("center")
        _require_types(Transform, transform)
        if center is not None:
            numbers = isinstance(center, list) and {*map(type, center)} <= {int, float}
            require(numbers, name="center", expected="a list of numbers", got=center)
            transform["center"] = tuple(center)
        backend = document["backend"]
        return cls(
            dim=document["dim"],
            transform=Transform(**transform),
            backend=backend_params(backend["kind"], backend["params"]),
            storage=storage,
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
        Whether recall is promised as a mean over queries like the rows, by calibration, or of each
        query, by the collision law (`index.hashing.banding`).
    rerank : {"gmm", "own", "none"}
        How hits are scored: by the exact GMM, by the backend's own exact kernel, or by its own
        estimate.
    candidates : int or None
        How many of the best by estimate are scored exactly, where a backend estimates; None for
        `MIN_POOL` or `POOL_SHARE` times the limit, whichever is more.
    """

    limit: int = 10
    recall: float = 0.9
    min_score: float = 0.0
    guarantee: Guarantee = "measured"
    rerank: Rerank = "gmm"
    candidates: int | None = None

    def __post_init__(self) -> None:
        """Raise InvalidParameter when a field is outside its range."""
        require(
            _is_whole(self.limit) and self.limit >= 1,
            name="limit",
            expected="a whole number, at least 1",
            got=self.limit,
        )
        require(
            _is_number(self.recall) and 0 < self.recall <= 1,
            name="recall",
            expected="a number in (0, 1]",
            got=self.recall,
        )
        require(
            _is_number(self.min_score) and 0 <= self.min_score <= 1,
            name="min_score",
            expected="a number in [0, 1]",
            got=self.min_score,
        )
        require(
            self.rerank in ("gmm", "own", "none"),
            name="rerank",
            expected="'gmm', 'own' or 'none'",
            got=self.rerank,
        )
        require(
            self.candidates is None or (_is_whole(self.candidates) and self.candidates >= 1),
            name="candidates",
            expected="null or a whole number, at least 1",
            got=self.candidates,
        )

    @property
    def pool(self) -> int:
        """How many rows are scored exactly, never fewer than the hits wanted."""
        if self.candidates is None:
            return max(MIN_POOL, POOL_SHARE * self.limit)
        return max(self.candidates, self.limit)
