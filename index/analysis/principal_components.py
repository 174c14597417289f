"""Kernel PCA on landmarks: places that keep what tells items apart most ([KPCA] §3).

With K the kernel of the landmarks, K̃ = K − 1K − K1 + 1K1 is that of their centred images; 1 has
1/m everywhere. An eigenvector a of K̃ with eigenvalue λ is an axis. A vector x lies on it at
Σ_j k̃(x, l_j) a_j / √λ, where k̃ is centred by the same means.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gcws_search.index.contracts.arrays import Float64s


@dataclass(frozen=True, slots=True)
class PrincipalComponents:
    """Axes learned from landmarks."""

    means: Float64s  # (m,): mean kernel of each landmark with all of them
    # (m, c): a / √λ of each axis; zeros for an axis along which the landmarks do not differ.
    weights: Float64s

    @classmethod
    def of(cls, kernel: Float64s, count: int) -> PrincipalComponents:
        """Return ``count`` axes along which landmarks differ most, by their (m, m) kernel."""
        m = len(kernel)
        means = kernel.mean(axis=1)
        centred = kernel - means[:, None] - means[None, :] + means.mean()
        eigenvalues, vectors = np.linalg.eigh((centred + centred.T) / 2)
        weights = np.zeros((m, count))
        round_off = eigenvalues[-1] * m * np.finfo(np.float32).eps
        for axis in range(min(count, m)):
            value, vector = eigenvalues[-1 - axis], vectors[:, -1 - axis]
            if value > max(round_off, 0.0):
                # The sign of an eigenvector is anybody's: the greatest entry is positive.
                sign = np.sign(vector[np.argmax(np.abs(vector))])
                weights[:, axis] = sign * vector / np.sqrt(value)
        return cls(means, weights)

    def places(self, kernel: Float64s) -> Float64s:
        """Return (n, c): where vectors lie on each axis, by their (n, m) kernel with landmarks."""
        own = kernel.mean(axis=1, keepdims=True)
        centred = kernel - own - self.means + self.means.mean()
        places: Float64s = centred @ self.weights
        return places
