"""Near-neighbour search for weighted, signed vectors under GMM: arrays in, hits out.

`Catalog` holds collections on disk and in memory. Everything a caller needs is named in
``__init__.pyi``, and imported on first use. Each package names its modules.

- `backend`: the interface of a search method
- `similarities`, `polya`: exact similarities; kernels of random binning
- `joins`: near-duplicate pairs
- `corpus`: groups of near-duplicates among rows in files
- `memory`: memory available to a process
- `payload`: payloads as JSON, columns of their keys, filters over these
- `threads`: work split over threads; background threads leave a processor to searches
- `cost_model`: nanoseconds of each step; when a scan is faster
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
