"""Near-neighbour search for weighted, signed vectors under GMM, the signed weighted Jaccard.

The names are in ``__init__.pyi``. Each is imported on first use, so that a program
that needs a few of them loads neither the compiler nor the web framework.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
