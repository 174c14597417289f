"""Parameters of collections, backends and searches: frozen, validated when made.

Bounds are in the types, texts in the docstrings: the API page shows both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from numbers import Integral, Real
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple, get_args, get_type_hints

from gcws_search.index.contracts.errors import InvalidParameter, place_errors, quantity
from gcws_search.index.contracts.scores import Ranking

Form = Literal["dense", "sparse"]
Storage = Literal["auto", "memory", "mapped"]
Normalize = Literal["none", "l1", "l2"]
WeightKind = Literal["idf", "standard", "robust", "max"]
"""Weights that are learned from items."""
Guarantee = Literal["measured", "proven"]
Rerank = Literal["gmm", "own", "none"]
Encoding = Literal["full", "zero_bit", "b_bit"]
FourierKind = Literal["rff", "nrff", "folded_rff"]
NystroemKind = Literal["gmm_nystroem", "rbf_nystroem"]
TokenKind = Literal["words", "characters"]
TokenWeights = Literal["set", "counts", "idf"]
BackendKind = Literal["gcws", "exact", FourierKind, "random_binning", NystroemKind]
Distribution = Literal[
    "gamma",
    "exponential",
    "chi_square",
    "chi",
    "half_normal",
    "rayleigh",
    "nakagami",
    "weibull",
    "shifted_poisson",
]

MAX_DIM: Final = 2**31 - 1
MAX_ID_LENGTH: Final = 255
"""Slots are numbered in 32 bits, signed."""
MAX_DENSE_DIM: Final = 4096
"""Up to this many dimensions rows are kept dense in memory; above it, and when open, sparse."""
MAX_CENTER: Final = 1e38
"""Largest coordinate of a centre; NaN and infinities are beyond it."""
MAX_WEIGHT: Final = 1e38
"""Largest weight of a coordinate; NaN and infinities are beyond it."""
CENTRING_KINDS: Final[tuple[WeightKind, ...]] = ("standard", "robust")
"""Weights with a centre, where rows are dense."""
KEY_BITS: Final = 64
MIN_POOL: Final = 100
POOL_SHARE: Final = 10
FOURIER_KINDS: Final[tuple[FourierKind, ...]] = get_args(FourierKind)
NYSTROEM_KINDS: Final[tuple[NystroemKind, ...]] = get_args(NystroemKind)
BACKEND_KINDS: Final[tuple[BackendKind, ...]] = get_args(BackendKind)
"""The words that name backends in the API."""
MAX_GAMMA: Final = 1e6
MAX_SHAPE: Final = 1e6
MAX_SCALE: Final = 1e9
MAX_NGRAM: Final = 16
"""Most tokens in a row that are one coordinate of a text."""
MAX_STOP_WORDS: Final = 10_000
MAX_TTL_SECONDS: Final = 1_000_000_000
"""Thirty years."""
MAX_SEED: Final = 2**63 - 1


def require(holds: bool, *, name: str, expected: str, got: object) -> None:
    """Raise InvalidParameter for the field ``name`` unless the condition holds."""
    if not holds:
        raise _invalid(name, expected, got)


def _invalid(name: str, expected: str, got: object, *place: str | int) -> InvalidParameter:
    return InvalidParameter(expected=expected, got=repr(got), loc=(name, *place))


class Within(NamedTuple):
    """The permitted numbers of a parameter; ``is_open``: ``low`` itself is excluded."""

    low: float
    high: float
    is_open: bool = False

    def holds(self, value: Any) -> bool:  # noqa: ANN401  # as a caller gave it
        """Return whether the value is a number in the range."""
        if not _is_number(value):
            return False
        if hasattr(value, "item"):  # a NumPy number, whose type may not hold the bounds
            value = value.item()
        is_within: bool = self.low <= value <= self.high
        return is_within and not (self.is_open and value == self.low)

    def __str__(self) -> str:
        """Return the range in words."""
        high = f"{self.high:g}"
        if float(high) != self.high:  # six digits are not enough
            high = "2^63 - 1" if self.high == MAX_SEED else str(self.high)
        if self.is_open:
            return f"a number above {self.low:g}, at most {high}"
        return f"{self.low:g} to {high}"


@cache
def _checks(parameters: type[Any]) -> list[tuple[str, tuple[str, ...], Within | None, bool, bool]]:
    """Return the name, words and range of each field that is checked.

    Also whether its numbers are integers, and whether it may be None.
    """
    found = []
    for name, hint in get_type_hints(parameters, include_extras=True).items():
        parts = [
            hint,
            *get_args(hint),
            *(inner for part in get_args(hint) for inner in get_args(part)),
        ]
        words = tuple(part for part in parts if isinstance(part, str))
        ranges = [part for part in parts if isinstance(part, Within)]
        if words or ranges:
            is_whole, may_be_none = int in parts, type(None) in parts
            found.append((name, words, ranges[0] if ranges else None, is_whole, may_be_none))
    return found


def require_fields(parameters: Any) -> None:  # noqa: ANN401  # any dataclass
    """Raise InvalidParameter unless each field has one of its words or is in its range.

    Numbers of NumPy are converted to Python's, for files and servers.
    """
    for name, words, bounds, is_whole, may_be_none in _checks(parameters.__class__):
        value = getattr(parameters, name)
        if (value is None and may_be_none) or isinstance(value, tuple):  # checked by their class
            continue
        if bounds is not None and _is_number(value):
            if hasattr(value, "item"):
                value = value.item()
                object.__setattr__(parameters, name, value)
            if is_whole and not isinstance(value, Integral):
                raise _invalid(name, "a whole number", value)
        if not (value in words if bounds is None else bounds.holds(value)):
            *others, last = map(repr, words or ("",))
            expected = f"{', '.join(others)} or {last}" if others else str(bounds)
            raise _invalid(name, "null or " * may_be_none + expected, value)


class Checked:
    """Parameters whose fields must be in their ranges; else InvalidParameter is raised."""

    __slots__ = ()

    def __post_init__(self) -> None:
        require_fields(self)


SHAPES: Final[dict[Distribution, tuple[float, float] | None]] = {
    "gamma": (2.0, 0.0),
    "exponential": None,
    "chi_square": (4.0, 0.0),
    "chi": (3.0, 0.0),
    "half_normal": None,
    "rayleigh": None,
    "nakagami": (1.0, 0.5),
    "weibull": (2.0, 0.05),  # below, the mean pitch leaves all others far behind
    "shifted_poisson": (1.0, 0.0),
}
"""The distributions of bins' pitches. Where they have a shape parameter, its default and the least
that is permitted; 0 is not. s of gamma, ν of chi-square and chi, m of Nakagami, κ of Weibull, μ of
1 + Poisson ([POLYA])."""

Seed = Annotated[int, Within(0, MAX_SEED)]
Gamma = Annotated[float, Within(0, MAX_GAMMA, is_open=True)]


@dataclass(frozen=True, kw_only=True, slots=True)
class UnlessSimilar(Checked):
    """Store an item unless there is one like it.

    Parameters
    ----------
    min_score : float
        Least score of an item that keeps another from being stored.
    recall : float
        Expected share of such items found among those stored before; 1 finds all.
    """

    min_score: Annotated[float, Within(0, 1, is_open=True)]
    recall: Annotated[float, Within(0, 1, is_open=True)] = 0.9


PutMode = Literal["upsert", "insert", "unless_similar"]
Mode = Literal["upsert", "insert"] | UnlessSimilar
"""Replace an item of the same id; refuse it; or store none that is like another."""


def require_word(name: str, value: object, words: Any) -> None:  # noqa: ANN401  # a Literal
    """Raise InvalidParameter unless a value is one of the words of a Literal."""
    known = words.__args__
    if value not in known:
        *others, last = map(repr, known)
        raise _invalid(name, f"{', '.join(others)} or {last}", value)


def put_mode(mode: PutMode, min_score: float | None = None, recall: float | None = None) -> Mode:
    """Return the mode of a write; InvalidParameter for a score without its mode."""
    require_word("mode", mode, PutMode)
    if mode == "unless_similar":
        if min_score is None:
            expected = "a min_score for the mode 'unless_similar'"
            raise InvalidParameter(expected=expected, got="none", loc=("min_score",))
        return UnlessSimilar(min_score=min_score, recall=0.9 if recall is None else recall)
    for name, value in (("min_score", min_score), ("recall", recall)):
        expected = "the mode 'unless_similar' beside it"
        require(value is None, name=name, expected=expected, got=mode)
    return mode


@dataclass(frozen=True, kw_only=True, slots=True)
class GcwsParams(Checked):
    """Hash tables over GCWS samples: GMM.

    Parameters
    ----------
    bands : int
        Number of tables. With ``band_width`` None the first 8 are built from the start, the others
        when they are needed.
    band_width : int or None
        Samples per band, 1 to 64; None: depth is chosen per query.
    encoding : {"full", "zero_bit", "b_bit"}
        The part of a sample (i*, t*) used in a key: both, i* alone, or ``bits`` bits of it.
    bits : int
        b of ``b_bit``.
    seed : int
        Seed of all randomness, 0 to 2^63 - 1.
    """

    kind: ClassVar[Literal["gcws"]] = "gcws"
    bands: Annotated[int, Within(1, 256)] = 32
    band_width: Annotated[int, Within(1, 64)] | None = None
    encoding: Encoding = "full"
    bits: Annotated[int, Within(1, 16)] = 8
    seed: Seed = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class ExactParams:
    """No index: every query scans all items."""

    kind: ClassVar[Literal["exact"]] = "exact"


@dataclass(frozen=True, kw_only=True, slots=True)
class FourierParams(Checked):
    """A scan of cosine features of the RBF kernel: as they are, of unit length, or folded.

    The kernel is e^{-γ(1 - ρ)}, ρ the cosine of two vectors.

    Parameters
    ----------
    kind : {"rff", "nrff", "folded_rff"}
        Features as they are, scaled to unit length, or without a random phase.
    features : int
        Number of features per item.
    gamma : float
        γ of the RBF kernel e^(-γ(1 - cosine)), above 0 and at most 1e6.
    seed : int
        Seed of all randomness, 0 to 2^63 - 1.
    """

    kind: FourierKind
    features: Annotated[int, Within(1, 16384)] = 512
    gamma: Gamma = 1.0
    seed: Seed = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class RandomBinningParams:
    """Hash tables over random bins: a product kernel of Polya's class.

    Parameters
    ----------
    distribution : str
        Distribution of the pitches of bins, which determines the kernel. ``gamma`` of shape 2: the
        Laplace kernel.
    shape : float or None
        Shape of the distribution, at most 1e6: s > 0 of ``gamma`` (2), ν > 0 of ``chi_square`` (4)
        and ``chi`` (3), m ≥ 0.5 of ``nakagami`` (1), κ ≥ 0.05 of ``weibull`` (2), μ > 0 of
        ``shifted_poisson`` (1); the others have none. None: the number in brackets, which the field
        then shows.
    scale : float
        Mean pitch, in the units of the transformed vectors: above 0, at most 1e9.
    bands : int
        Number of tables.
    seed : int
        Seed of all randomness, 0 to 2^63 - 1.
    """

    kind: ClassVar[Literal["random_binning"]] = "random_binning"
    distribution: Distribution = "gamma"
    shape: Annotated[float, Within(0, MAX_SHAPE, is_open=True)] | None = None
    scale: Annotated[float, Within(0, MAX_SCALE, is_open=True)] = 1.0
    bands: Annotated[int, Within(1, 256)] = 32
    seed: Seed = 0

    def __post_init__(self) -> None:
        """Raise InvalidParameter if a field is outside its range; fill in the shape."""
        require_fields(self)
        permitted = SHAPES[self.distribution]
        if permitted is None:
            expected = f"null: {self.distribution} has no shape"
            require(self.shape is None, name="shape", expected=expected, got=self.shape)
        else:
            default, low = permitted
            shape = default if self.shape is None else self.shape
            if not shape >= low:
                raise _invalid("shape", f"{low:g} to {MAX_SHAPE:g}", shape)
            object.__setattr__(self, "shape", float(shape))


@dataclass(frozen=True, kw_only=True, slots=True)
class NystroemParams(Checked):
    """A scan of features learned from landmarks: GMM, or the RBF kernel.

    Parameters
    ----------
    kind : {"gmm_nystroem", "rbf_nystroem"}
        Whether they estimate GMM or the RBF kernel e^{-γ(1 - ρ)}.
    landmarks : int
        Number of landmark items; at most as many as there are. Until a collection created with this
        backend has that many, queries scan.
    gamma : float
        γ of the RBF kernel e^(-γ(1 - cosine)), above 0 and at most 1e6; only of ``rbf_nystroem``.
    seed : int
        Seed of all randomness, 0 to 2^63 - 1.
    """

    kind: NystroemKind
    landmarks: Annotated[int, Within(1, 4096)] = 256
    gamma: Gamma = 1.0
    seed: Seed = 0


BackendParams = GcwsParams | ExactParams | FourierParams | RandomBinningParams | NystroemParams


@dataclass(frozen=True, kw_only=True, slots=True)
class Transform:
    """Transform applied to every vector first: center, weigh, raise to a power, normalise.

    Parameters
    ----------
    center : tuple of float or None
        Subtracted first: ``dim`` numbers, ``dim`` at most 4096; None: none.
    power : float
        p of sign(x)·|x|^p (pGMM), above 0 and at most 64.
    normalize : {"none", "l1", "l2"}
        Norm to divide by at the end.
    weights : tuple of float, {"idf", "standard", "robust", "max"}, or None
        Factors of the coordinates, after centring: ``dim`` numbers above 0, ``dim`` at most 4096;
        or a kind to be learned from the items on request, 1 until then. None: none.
    """

    center: tuple[float, ...] | None = None
    power: Annotated[float, Within(0, 64, is_open=True)] = 1.0
    normalize: Normalize = "none"
    weights: tuple[float, ...] | WeightKind | None = None

    def __post_init__(self) -> None:
        require_fields(self)
        for value in self.center or ():
            if not abs(value) <= MAX_CENTER:
                raise _invalid("center", f"numbers of at most {MAX_CENTER:g} in size", value)
        if isinstance(self.weights, tuple):
            for place, value in enumerate(self.weights):
                if not 0 < value <= MAX_WEIGHT:
                    expected = f"a number above 0, at most {MAX_WEIGHT:g}"
                    raise _invalid("weights", expected, value, place)
        elif self.weights is not None and self.center is not None:
            expected = f"null beside weights that are learned ({self.weights!r})"
            raise _invalid("center", expected, quantity(len(self.center), "value"))


def _transform_of(given: dict[str, Any]) -> Transform:
    """Return a transform from its JSON form."""
    lists = {"center": given.pop("center"), "weights": given.pop("weights", None)}
    _require_types(Transform, given)
    for name, values in lists.items():
        if name == "weights" and isinstance(values, str):
            given[name] = values
        elif values is not None:
            numbers = isinstance(values, list) and {*map(type, values)} <= {int, float}
            require(numbers, name=name, expected="a list of numbers", got=values)
            given[name] = tuple(values)
    return Transform(**given)


def backend_document(params: BackendParams) -> dict[str, Any]:
    """Return the JSON form of a backend's parameters: its kind and its ``params``."""
    fields = asdict(params)
    fields.pop("kind", None)
    if params.kind == "gmm_nystroem":
        del fields["gamma"]  # only for rbf_nystroem
    return {"kind": params.kind, "params": fields}


_TYPE_NAMES: Final = {
    int: "a whole number",
    float: "a number",
    str: "a string",
    bool: "true or false",
    type(None): "null",
}


def _require_types(params_class: type[Any], given: Mapping[str, Any]) -> None:
    """Raise InvalidParameter unless each value has a type that its field permits."""
    types = get_type_hints(params_class)
    for name, value in given.items():
        permitted = get_args(types[name]) or (types[name],)
        if str in map(type, permitted):  # a Literal, whose class checks the words
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


def backend_params(kind: str, params: Mapping[str, Any]) -> BackendParams:
    """Inverse of `backend_document`; missing parameters have their defaults.

    Raises InvalidParameter (the kind or a parameter is unknown, out of range, or of another
        type).
    """
    expected = f"one of {', '.join(BACKEND_KINDS)}"
    require(kind in BACKEND_KINDS, name="kind", expected=expected, got=kind)
    require(isinstance(params, Mapping), name="params", expected="a dict", got=params)
    params_class = _CLASSES[kind]
    every = [each.name for each in fields(params_class)]
    names = [name for name in every if name != "kind"]
    if kind == "gmm_nystroem":
        names.remove("gamma")
    for name in params:
        known = f"one of {', '.join(names)}" if names else "no parameters"
        require(name in names, name=name, expected=known, got=name)
    _require_types(params_class, params)
    given: dict[str, Any] = {**params, **({"kind": kind} if "kind" in every else {})}
    return params_class(**given)


_CLASSES: Final[dict[str, type[BackendParams]]] = {
    "gcws": GcwsParams,
    "exact": ExactParams,
    "random_binning": RandomBinningParams,
    **dict.fromkeys(FOURIER_KINDS, FourierParams),
    **dict.fromkeys(NYSTROEM_KINDS, NystroemParams),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class TextParams:
    """How texts become vectors: their tokens, and the weight of a token.

    Parameters
    ----------
    tokens : {"words", "characters"}
        Words are runs of letters, digits and underscores, of any script. Characters are code
        points; runs of white space become one space.
    ngrams : tuple of int
        Minimum and maximum number of consecutive tokens per coordinate, 1 to 16.
    weights : {"set", "counts", "idf"}
        Weight of an n-gram: 1; its count in the text; or its count times the weight that
        ``transform.weights`` "idf" learns, which the collection then has.
    lowercase : bool
        Whether texts are lowercased first.
    stop_words : tuple of str
        Words removed before n-grams are made, written like their tokens: lowercased if texts are;
        see `require_tokens`. A word that is not one token, such as ``"a b"``, removes nothing.
    """

    tokens: TokenKind = "words"
    ngrams: tuple[int, int] = (1, 1)
    weights: TokenWeights = "set"
    lowercase: bool = True
    stop_words: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_fields(self)
        ngrams = self.ngrams
        are_two = len(ngrams) == len(("low", "high")) and all(map(_is_whole, ngrams))
        require(
            are_two and 1 <= ngrams[0] <= ngrams[1] <= MAX_NGRAM,
            name="ngrams",
            expected=f"two whole numbers from 1 to {MAX_NGRAM}, the lesser first",
            got=[*ngrams],
        )
        words = self.stop_words
        expected = f"at most {MAX_STOP_WORDS} strings"
        holds = len(words) <= MAX_STOP_WORDS and all(isinstance(word, str) for word in words)
        got = len(words) if len(words) > MAX_STOP_WORDS else [*words[:3]]
        require(holds, name="stop_words", expected=expected, got=got)
        if words and self.tokens != "words":
            raise _invalid("stop_words", "none where tokens are characters", [*words[:3]])

    def require_tokens(self) -> None:
        """Raise InvalidParameter for a stop word that is not a token, e.g. in upper case.

        Collections of older versions may have such words, and can still be opened.
        """
        for word in self.stop_words:
            if self.lowercase and word != word.lower():
                expected = f"{word.lower()!r}, since texts are lowercased; or lowercase: false"
                raise InvalidParameter(expected=expected, got=repr(word), loc=("stop_words",))

    def to_dict(self) -> dict[str, Any]:
        """Return the parameters in JSON form."""
        return asdict(self) | {"ngrams": [*self.ngrams], "stop_words": [*self.stop_words]}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> TextParams:
        """Inverse of `to_dict`; missing fields have their defaults.

        Raises InvalidParameter (a field is unknown, out of range, or of another
            type).
        """
        names = [each.name for each in fields(cls)]
        for name in document:
            require(name in names, name=name, expected=f"one of {', '.join(names)}", got=name)
        lists = {word: document[word] for word in ("ngrams", "stop_words") if word in document}
        for name, value in lists.items():
            require(isinstance(value, list | tuple), name=name, expected="a list", got=value)
        _require_types(cls, {word: document[word] for word in document if word not in lists})
        return cls(**{**document, **{word: tuple(value) for word, value in lists.items()}})


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectionConfig:
    """What a collection is made with, and has for good.

    All but ``storage`` must stay fixed for its hashes to be comparable.

    Parameters
    ----------
    dim : int or None
        Number of coordinates; None for an open slot space (sparse vectors only).
    storage : {"auto", "memory", "mapped"}
        Where float vectors lie: in memory, or in files that the system maps into it and drops from
        it when memory is short. "auto": in memory up to 1 GiB, or a third of the memory if that is
        less. All that a search reads of most rows lies in memory in any case.
    text : TextParams or None
        How the texts of items and queries become vectors; ``dim`` is None then. None: items and
        queries have vectors.
    ttl : float or None
        Seconds after a write at which its items expire that have no time of their own; None: such
        items never do.
    """

    dim: int | None
    transform: Transform = field(default_factory=Transform)
    backend: BackendParams = field(default_factory=GcwsParams)
    storage: Storage = "auto"
    text: TextParams | None = None
    ttl: Annotated[float, Within(0.0, MAX_TTL_SECONDS, is_open=True)] | None = None

    def __post_init__(self) -> None:
        if self.text is not None and self.dim is not None:
            raise _invalid("dim", "null for a collection of texts", self.dim)
        if self.text is not None and self.text.weights == "idf":
            weights = self.transform.weights
            if weights not in (None, "idf"):
                expected = "'idf', by which texts are weighed"
                raise _invalid("transform", expected, weights, "weights")
            object.__setattr__(self, "transform", replace(self.transform, weights="idf"))
        if not (self.dim is None or 1 <= self.dim <= MAX_DIM):
            raise _invalid("dim", f"null or 1 to {MAX_DIM}", self.dim)
        require_fields(self)
        weights = self.transform.weights
        if weights == "robust" and self.form != "dense":
            expected = f"'idf', 'standard' or 'max' unless dim is at most {MAX_DENSE_DIM}"
            raise _invalid("transform", expected, weights, "weights")
        for name, values in (("center", self.transform.center), ("weights", weights)):
            if not isinstance(values, tuple):
                continue
            got = quantity(len(values), "value")
            if self.dim is None or self.form != "dense":
                expected = f"null unless dim is at most {MAX_DENSE_DIM}"
                if name == "weights":
                    expected = f"null or a word unless dim is at most {MAX_DENSE_DIM}"
                raise _invalid("transform", expected, f"{got} with dim {self.dim}", name)
            if len(values) != self.dim:
                raise _invalid("transform", quantity(self.dim, "value"), got, name)

    @property
    def form(self) -> Form:
        """The form of rows in memory."""
        return "dense" if self.dim is not None and self.dim <= MAX_DENSE_DIM else "sparse"

    def to_dict(self) -> dict[str, Any]:
        """Return the configuration in JSON form, without defaults and absent parts."""
        transform = asdict(self.transform)
        if self.transform.center is not None:
            transform["center"] = list(self.transform.center)
        if self.transform.weights is None:
            del transform["weights"]
        elif isinstance(self.transform.weights, tuple):
            transform["weights"] = list(self.transform.weights)
        return {
            "dim": self.dim,
            "transform": transform,
            "backend": backend_document(self.backend),
            **({} if self.storage == "auto" else {"storage": self.storage}),
            **({} if self.text is None else {"text": self.text.to_dict()}),
            **({} if self.ttl is None else {"ttl": self.ttl}),
        }

    def difference(self, other: CollectionConfig) -> str:
        """Return in words the first part that differs from another configuration."""
        mine, others = (
            {"storage": each.storage, "text": None, "ttl": None} | each.to_dict()
            for each in (self, other)
        )
        part = next((word for word in mine if mine[word] != others[word]), "dim")
        return f"with {part} {mine[part]}, not {others[part]}"

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> CollectionConfig:
        """Inverse of `to_dict`.

        Raises InvalidParameter, KeyError, TypeError, ValueError (the document is not valid).
        """
        storage, ttl = document.get("storage", "auto"), document.get("ttl")
        _require_types(cls, {"dim": document["dim"], "storage": storage, "ttl": ttl})
        with place_errors("transform"):
            transform = _transform_of(dict(document["transform"]))
        with place_errors("backend", "params"):
            backend = backend_params(document["backend"]["kind"], document["backend"]["params"])
        with place_errors("text"):
            text = document.get("text")
            text = None if text is None else TextParams.from_dict(text)
        return cls(
            dim=document["dim"],
            transform=transform,
            backend=backend,
            storage=storage,
            text=text,
            ttl=ttl,
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
        Hits below this score are not wanted, in [0, 1].
    guarantee : {"measured", "proven"}
        Whether recall is promised as a mean over queries like the rows, by calibration, or of each
        query, by the collision law (`index.hashing.banding`).
    rerank : {"gmm", "own", "none"}
        How hits are scored: by the exact GMM, by the backend's own exact kernel, or by its own
        estimate.
    candidates : int or None
        How many of the best by estimate are scored exactly, where a backend estimates; None for
        `MIN_POOL` or `POOL_SHARE` times the limit, whichever is more.
    ranking : {"gmm", "containment"}
        What hits are scored and ranked by; ``min_score`` is of it. Containment takes a scan,
        whatever the other parameters allow.
    """

    limit: int = 10
    recall: float = 0.9
    min_score: float = 0.0
    guarantee: Guarantee = "measured"
    rerank: Rerank = "gmm"
    candidates: int | None = None
    ranking: Ranking = "gmm"

    def __post_init__(self) -> None:
        whole = "a whole number, at least 1"
        if not (_is_whole(self.limit) and self.limit >= 1):
            raise _invalid("limit", whole, self.limit)
        if not (_is_number(self.recall) and 0 < self.recall <= 1):
            raise _invalid("recall", "a number in (0, 1]", self.recall)
        if not (_is_number(self.min_score) and 0 <= self.min_score <= 1):
            raise _invalid("min_score", "a number in [0, 1]", self.min_score)
        require_word("guarantee", self.guarantee, Guarantee)
        require_word("rerank", self.rerank, Rerank)
        require_word("ranking", self.ranking, Ranking)
        chosen = self.candidates
        if chosen is not None and not (_is_whole(chosen) and chosen >= 1):
            raise _invalid("candidates", f"null or {whole}", chosen)

    @property
    def pool(self) -> int:
        """Number of rows that are scored exactly, at least the requested hits."""
        if self.candidates is None:
            return max(MIN_POOL, POOL_SHARE * self.limit)
        return max(self.candidates, self.limit)
