"""Recall against candidates and bytes, every backend: ``python -m benchmarks.papers.search``.

[GMM] and [RFF] compare their features for learning; here every search method of the library looks
for the same exact GMM neighbours. A query's recall is the share of its ten hits whose exact score
reaches that of the tenth true neighbour, so that ties cannot lower it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter

from benchmarks.harness.datasets import DataSet, load, made
from benchmarks.harness.engine import Engine, row_hits
from benchmarks.harness.report import Table, figure
from benchmarks.papers.labelled import unit_rows
from benchmarks.papers.sheet import Options, Sheet, main, panels
from gcws_search.index.contracts.arrays import Float32s, Float64s
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.parameters import (
    BackendParams,
    ExactParams,
    FourierParams,
    GcwsParams,
    Guarantee,
    NystroemParams,
    RandomBinningParams,
    SearchParams,
)

SETS: Final = ("fashion_mnist", "dailysports_frames", "covtype93k")
ROWS: Final = 20_000
QUICK_ROWS: Final = 1200
QUERIES: Final = 200
LIMIT: Final = 10
CANDIDATES: Final = (10, 30, 100, 300, 1000, 3000)
TARGETS: Final = (0.3, 0.5, 0.8, 0.9, 0.95, 0.99)
"""Of GCWS, which takes a recall rather than a number of candidates."""
MIDDLE: Final = 2
"""Which of `CANDIDATES` is compared by bytes."""
MIDDLE_TARGET: Final = 3
"""Which of `TARGETS` is."""
ROUNDING: Final = 1e-9
FEATURES: Final = (64, 256, 1024)
BANDS: Final = (8, 32, 128)
COLUMNS: Final = (
    "data", "backend", "setting", "bytes an item", "build, s",
    *(f"recall, {c:,} candidates" for c in CANDIDATES),
)  # fmt: skip
GCWS_COLUMNS: Final = (
    "data", "backend", "setting", "bytes an item", "build, s", *(f"asked {t}" for t in TARGETS),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Setting:
    """A backend to be measured.

    Attributes
    ----------
    guarantee : {"measured", "proven"} or None
        Of GCWS; None for a backend that takes a number of candidates.
    """

    name: str
    size: str
    params: BackendParams
    guarantee: Guarantee | None = None

    def searches(self) -> list[SearchParams]:
        """Return the settings, in order of increasing work."""
        if self.guarantee is None:
            return [SearchParams(limit=LIMIT, candidates=count) for count in CANDIDATES]
        return [
            SearchParams(limit=LIMIT, recall=target, guarantee=self.guarantee) for target in TARGETS
        ]


@dataclass(frozen=True, slots=True)
class Measured:
    """What one backend found.

    Attributes
    ----------
    bytes_ : float
        Of memory an item, the vectors themselves left out.
    points : list of (candidates, recall)
    """

    data: str
    setting: Setting
    bytes_: float
    build_seconds: float
    points: list[tuple[float, float]] = field(default_factory=list)

    @property
    def middle(self) -> float:
        """Recall at the candidates or the target by which backends are compared."""
        return self.points[MIDDLE if self.setting.guarantee is None else MIDDLE_TARGET][1]


def settings(gamma: float, scale: float, *, sizes: int) -> list[Setting]:
    """Return every backend at this number of sizes, the smallest first."""
    made_: list[Setting] = []
    for bands in BANDS[:sizes]:
        for guarantee in ("measured", "proven"):
            params = GcwsParams(bands=bands)
            name = "gcws, walk" if guarantee == "measured" else "gcws, tables"
            made_.append(Setting(name, f"{bands} bands", params, guarantee))
    for kind in ("rff", "nrff", "folded_rff"):
        for features in FEATURES[:sizes]:
            fourier = FourierParams(kind=kind, features=features, gamma=gamma)
            made_.append(Setting(kind, f"{features} features", fourier))
    for bands in BANDS[:sizes]:
        binning = RandomBinningParams(bands=bands, scale=scale)
        made_.append(Setting("random_binning", f"{bands} bands", binning))
    for nystroem in ("gmm_nystroem", "rbf_nystroem"):
        for count in FEATURES[:sizes]:
            params_ = NystroemParams(kind=nystroem, landmarks=count, gamma=gamma)
            made_.append(Setting(nystroem, f"{count} landmarks", params_))
    return made_


@dataclass(frozen=True, slots=True)
class Truth:
    """The exact neighbours of held-out queries.

    Attributes
    ----------
    least : (m,) float64
        The score of each query's tenth neighbour.
    gamma : float
        1/(1 − ρ) of a typical tenth neighbour: there the RBF kernel is 1/e.
    distance : float
        The L1 distance of a typical tenth neighbour.
    """

    stored: Float32s
    queries: Float32s
    least: Float64s
    gamma: float
    distance: float

    @classmethod
    def of(cls, data: DataSet, *, rows: int, threads: int) -> "Truth":
        """Hold queries out, and scan for their neighbours."""
        order = np.random.default_rng(0).permutation(len(data.vectors))[: rows + QUERIES]
        queries, stored = (
            np.ascontiguousarray(data.vectors[some])
            for some in (order[:QUERIES], np.sort(order[QUERIES:]))
        )
        engine = Engine.build(stored, ExactParams(), threads=threads)
        exact = SearchParams(limit=LIMIT, recall=1.0)
        hits = row_hits(engine.search(engine.prepare(queries), exact))
        last = np.array([each.rows[LIMIT - 1] for each in hits])
        cosines = np.sum(unit_rows(queries) * unit_rows(stored[last]), axis=1, dtype=np.float64)
        distances = np.abs(queries - stored[last]).sum(axis=1, dtype=np.float64)
        away = float(np.median(1 - cosines))
        return cls(
            stored,
            queries,
            np.array([each.scores[LIMIT - 1] for each in hits]),
            1 / max(away, 1e-5),
            float(np.median(distances)),
        )

    def measure(self, name: str, setting: Setting, engine: Engine) -> Measured:
        """Return what a backend finds."""
        bytes_ = engine.backend.nbytes(engine.state) / len(self.stored)
        queries = engine.prepare(self.queries)
        measured = Measured(name, setting, bytes_, engine.build_seconds)
        for params in setting.searches():
            measured.points.append(self._point(engine, queries, params))
        return measured

    def _point(
        self, engine: Engine, queries: VectorBatch, params: SearchParams
    ) -> tuple[float, float]:
        hits = row_hits(engine.search(queries, params))
        shares = [
            min(LIMIT, int(np.count_nonzero(each.scores >= least - ROUNDING))) / LIMIT
            for each, least in zip(hits, self.least, strict=True)
        ]
        looked = params.candidates or np.mean([each.explanation.candidates for each in hits])
        return float(looked), float(np.mean(shares))


def result_tables(results: Sequence[Measured]) -> list[Table]:
    """Return recall at numbers of candidates, and of GCWS at targets."""
    table, gcws = Table("search", COLUMNS), Table("search by gcws", GCWS_COLUMNS)
    for each in results:
        start = (
            each.data,
            each.setting.name,
            each.setting.size,
            f"{each.bytes_:,.0f}",
            f"{each.build_seconds:.1f}",
        )
        if each.setting.guarantee is None:
            table.add(*start, *(f"{recall:.3f}" for _, recall in each.points))
        else:
            cells = [f"{recall:.3f} ({figure(round(looked))})" for looked, recall in each.points]
            gcws.add(*start, *cells)
    gcws.notes.append(
        f"Recall of the {LIMIT} nearest by exact GMM, and in brackets the mean number of "
        "candidates: rows found in tables, or met on a walk. `walk` is the measured promise, "
        "`tables` the proven one."
    )
    return [gcws, table]


def draw(axes: Sequence[Axes], results: Sequence[Measured], data: str) -> None:
    """Draw recall against candidates, at the middle size, and against bytes."""
    here = [each for each in results if each.data == data]
    names = list(dict.fromkeys(each.setting.name for each in here))
    for i, name in enumerate(names):
        sizes = [each for each in here if each.setting.name == name]
        points = sizes[len(sizes) // 2].points
        axes[0].semilogx(*zip(*points, strict=True), f"C{i}.-", label=name)
        by_bytes = [(each.bytes_, each.middle) for each in sizes]
        axes[1].semilogx(*zip(*by_bytes, strict=True), f"C{i}.-", label=name)
    axes[0].set(xlabel="candidates", ylabel="recall", title=data)
    axes[1].set(
        xlabel="bytes an item",
        ylabel="recall",
        title=f"{CANDIDATES[MIDDLE]} candidates; GCWS asked {TARGETS[MIDDLE_TARGET]}",
    )
    axes[1].xaxis.set_minor_formatter(NullFormatter())
    axes[0].legend(fontsize=7)


def run(options: Options) -> Sheet:
    """Return what every backend finds on all sets."""
    rows = QUICK_ROWS if options.quick else ROWS
    if options.data is None or options.quick:
        sets = [DataSet("synthetic, clustered", made(rows=QUICK_ROWS + QUERIES, dim=24))]
    else:
        sets = [load(name, options.data) for name in SETS]
    results, notes = [], []
    for data in sets:
        truth = Truth.of(data, rows=rows, threads=options.threads)
        scale = 2 * truth.distance
        chosen = settings(truth.gamma, scale, sizes=1 if options.quick else 3)
        for params, group in groupby(chosen, key=lambda setting: setting.params):
            engine = Engine.build(truth.stored, params, threads=options.threads)
            for setting in group:
                if setting.guarantee == "proven":
                    engine = engine.with_all_tables()
                results.append(truth.measure(data.name, setting, engine))
        notes.append(f"{data.name}: γ = {truth.gamma:.3g}, mean pitch {scale:.3g}")
    tables = result_tables(results)
    tables[-1].notes.append(
        f"{rows:,} stored rows drawn at random, {QUERIES} held-out queries. The best candidates by "
        "estimate are scored by exact GMM. Bytes are the index's, vectors left out. γ is such that "
        "a typical tenth neighbour has an RBF of 1/e, and the mean pitch (gamma(2): the Laplace "
        f"kernel) such that it has 1/e. {'; '.join(notes)}."
    )
    figure_, axes = panels(2, len(sets))
    for i, data in enumerate(sets):
        draw(axes[2 * i : 2 * i + 2], results, data.name)
    return Sheet("search", "Neighbour search by every backend", figure_, tables)


if __name__ == "__main__":
    main(run, "Recall against candidates and bytes, every backend.", needs_data=True)
