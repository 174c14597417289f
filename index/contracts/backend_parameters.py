"""Parameters of backends: frozen, validated when made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from gcws_search.index.contracts.errors import InvalidParameter

Encoding = Literal["full", "zero_bit", "b_bit"]
FourierKind = Literal["rff", "nrff", "folded_rff"]
NystroemKind = Literal["gmm_nystroem", "rbf_nystroem"]
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

FOURIER_KINDS: Final[tuple[FourierKind, ...]] = ("rff", "nrff", "folded_rff")
NYSTROEM_KINDS: Final[tuple[NystroemKind, ...]] = ("gmm_nystroem", "rbf_nystroem")
MAX_GAMMA: Final = 1e6
MAX_SHAPE: Final = 1e6
MAX_SCALE: Final = 1e9


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape parameter of a distribution.

    Attributes
    ----------
    default : float
    min_value : float
        The least that is permitted; 0 is not, where it is 0.
    """

    default: float
    min_value: float = 0.0

    @property
    def expected(self) -> str:
        """The permitted range in words."""
        min_value = f"{self.min_value:g} to" if self.min_value else "a number above 0, at most"
        return f"{min_value} {MAX_SHAPE:g}"


SHAPES: Final[dict[Distribution, Shape | None]] = {
    "gamma": Shape(2.0),
    "exponential": None,
    "chi_square": Shape(4.0),
    "chi": Shape(3.0),
    "half_normal": None,
    "rayleigh": None,
    "nakagami": Shape(1.0, 0.5),
    "weibull": Shape(2.0, 0.05),  # below, the mean pitch leaves all others far behind
    "shifted_poisson": Shape(1.0),
}
"""The distributions of bins' pitches, and their shape parameter where they have one: s of gamma,
ν of chi-square and chi, m of Nakagami, κ of Weibull, μ of 1 + Poisson ([POLYA])."""


def require(holds: bool, *, name: str, expected: str, got: object) -> None:
    """Raise InvalidParameter about the field ``name`` unless the condition holds."""
    if not holds:
        raise InvalidParameter(expected=expected, got=repr(got), loc=(name,))


def _require_seed(seed: int) -> None:
    require(0 <= seed < 2**63, name="seed", expected="0 to 2^63 - 1", got=seed)


def _require_gamma(gamma: float) -> None:
    expected = f"a number above 0, at most {MAX_GAMMA:g}"
    require(0 < gamma <= MAX_GAMMA, name="gamma", expected=expected, got=gamma)


@dataclass(frozen=True, kw_only=True, slots=True)
class GcwsParams:
    """A GCWS hash-table index.

    Parameters
    ----------
    bands : int
        Number of tables, 1-256; those beyond the first are made once there is use for them, unless
        ``band_width`` is a number.
    band_width : int or None
        None: depth is chosen per query by its recall target. A number: classical banding, every
        band that many samples wide.
    encoding : {"full", "zero_bit", "b_bit"}
        What of a sample (i*, t*) goes into a key: both, i* alone, or ``bits`` bits of it.
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
        require(1 <= self.bands <= 256, name="bands", expected="1 to 256", got=self.bands)
        require(
            self.band_width is None or 1 <= self.band_width <= 64,
            name="band_width",
            expected="null or 1 to 64",
            got=self.band_width,
        )
        require(
            self.encoding in ("full", "zero_bit", "b_bit"),
            name="encoding",
            expected="'full', 'zero_bit' or 'b_bit'",
            got=self.encoding,
        )
        require(1 <= self.bits <= 16, name="bits", expected="1 to 16", got=self.bits)
        _require_seed(self.seed)

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


@dataclass(frozen=True, kw_only=True, slots=True)
class FourierParams:
    """Cosine features of the RBF kernel e^{-γ(1 - ρ)}, ρ the cosine of two vectors.

    Parameters
    ----------
    kind : {"rff", "nrff", "folded_rff"}
        As they are, scaled to unit length, or without a random phase.
    features : int
        k, the number of features, 1-16384.
    gamma : float
        γ, above 0.
    seed : int
        Seed of all randomness, 0 to 2^63 - 1.
    """

    kind: FourierKind
    features: int = 512
    gamma: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Raise InvalidParameter when a field is outside its range."""
        require(
            self.kind in FOURIER_KINDS,
            name="kind",
            expected="'rff', 'nrff' or 'folded_rff'",
            got=self.kind,
        )
        require(
            1 <= self.features <= 16384, name="features", expected="1 to 16384", got=self.features
        )
        _require_gamma(self.gamma)
        _require_seed(self.seed)


@dataclass(frozen=True, kw_only=True, slots=True)
class RandomBinningParams:
    """Random bins over each coordinate: an estimate of a product kernel of Polya's class.

    Parameters
    ----------
    distribution : str
        Of the pitches S of bins, one of `SHAPES`.
    shape : float or None
        Its shape parameter; None takes the default, which is what the field then holds. It stays
        None for a distribution that has none.
    scale : float
        The mean pitch: pitches are S·scale/E[S].
    bands : int
        Number of tables, 1-256.
    seed : int
        Seed of all randomness, 0 to 2^63 - 1.
    """

    distribution: Distribution = "gamma"
    shape: float | None = None
    scale: float = 1.0
    bands: int = 32
    seed: int = 0

    def __post_init__(self) -> None:
        """Raise InvalidParameter when a field is outside its range; fill in the shape."""
        require(
            self.distribution in SHAPES,
            name="distribution",
            expected=f"one of {', '.join(SHAPES)}",
            got=self.distribution,
        )
        permitted = SHAPES[self.distribution]
        if permitted is None:
            expected = f"null: {self.distribution} has no shape"
            require(self.shape is None, name="shape", expected=expected, got=self.shape)
        else:
            shape = permitted.default if self.shape is None else self.shape
            holds = 0 < shape <= MAX_SHAPE and shape >= permitted.min_value
            require(holds, name="shape", expected=permitted.expected, got=shape)
            object.__setattr__(self, "shape", float(shape))
        require(
            0 < self.scale <= MAX_SCALE,
            name="scale",
            expected=f"a number above 0, at most {MAX_SCALE:g}",
            got=self.scale,
        )
        require(1 <= self.bands <= 256, name="bands", expected="1 to 256", got=self.bands)
        _require_seed(self.seed)

    @property
    def kind(self) -> Literal["random_binning"]:
        """The word that names this backend in the API."""
        return "random_binning"


@dataclass(frozen=True, kw_only=True, slots=True)
class NystroemParams:
    """Features learned from landmarks, rows of the collection.

    Parameters
    ----------
    kind : {"gmm_nystroem", "rbf_nystroem"}
        Whether they estimate GMM or the RBF kernel e^{-γ(1 - ρ)}.
    landmarks : int
        How many rows are landmarks, 1-4096.
    gamma : float
        γ, above 0; of ``rbf_nystroem`` alone.
    seed : int
        Seed of the choice of landmarks, 0 to 2^63 - 1.
    """

    kind: NystroemKind
    landmarks: int = 256
    gamma: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Raise InvalidParameter when a field is outside its range."""
        require(
            self.kind in NYSTROEM_KINDS,
            name="kind",
            expected="'gmm_nystroem' or 'rbf_nystroem'",
            got=self.kind,
        )
        require(
            1 <= self.landmarks <= 4096, name="landmarks", expected="1 to 4096", got=self.landmarks
        )
        _require_gamma(self.gamma)
        _require_seed(self.seed)


BackendParams = GcwsParams | ExactParams | FourierParams | RandomBinningParams | NystroemParams
