"""Agreed CPUs: what kernels are compiled for in advance, to run on machines of other people.

Such kernels are compiled for a set of instructions, not for the machine at hand. The sets of x86
are the levels of its System V ABI. ``generic`` is what any machine of an architecture has.
"""

from typing import Final, NamedTuple

from llvmlite import binding

_V3: Final = (
    "avx", "avx2", "bmi", "bmi2", "cx16", "f16c", "fma", "lzcnt", "movbe", "popcnt", "sahf",
    "sse3", "sse4.1", "sse4.2", "ssse3", "xsave",
)  # fmt: skip
_V4: Final = *_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"


class Cpu(NamedTuple):
    """A set of instructions."""

    name: str  # LLVM's name
    features: tuple[str, ...]  # what a machine must have, as LLVM spells it

    @property
    def settings(self) -> dict[str, str]:
        """The variables that make numba compile for this CPU."""
        features = ",".join(f"+{feature}" for feature in self.features)
        return {"NUMBA_CPU_NAME": self.name, "NUMBA_CPU_FEATURES": features}

    @property
    def codegen(self) -> tuple[str, str, str]:
        """What numba's cache calls code of this CPU: platform, name, features."""
        name, features = self.settings.values()
        return binding.get_process_triple(), name, features


AGREED: Final = (Cpu("x86-64-v4", _V4), Cpu("x86-64-v3", _V3), Cpu("generic", ()))
"""The best one first."""


def cpus_of(features: frozenset[str]) -> tuple[Cpu, ...]:
    """Return the agreed CPUs that a machine of these features can stand for, the best one first."""
    return tuple(cpu for cpu in AGREED if features.issuperset(cpu.features))


def features_here() -> frozenset[str]:
    """Return the features of this machine, as LLVM spells them."""
    try:
        return frozenset(name for name, has in binding.get_host_cpu_features().items() if has)
    except RuntimeError:  # not known on this platform
        return frozenset()
