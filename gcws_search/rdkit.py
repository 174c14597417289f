"""Molecules and reactions of RDKit as count fingerprints, whose bits are names of coordinates.

Bits are not folded: they have up to 64 bits, and as names they are exact.

Needs the extra ``rdkit``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from rdkit import Chem, rdBase
from rdkit.Chem import rdChemReactions, rdFingerprintGenerator

from gcws_search.index.contracts.errors import InvalidParameter, InvalidVector

if TYPE_CHECKING:
    from rdkit.Chem.rdChemReactions import ChemicalReaction

__all__ = ["counts"]

_MORGAN: Final = re.compile(r"morgan:(\d)")
REACTION: Final = "reaction"


def counts(mol: Chem.Mol | ChemicalReaction | str, fingerprint: str = "morgan:2") -> dict[str, int]:
    """Return the count fingerprint of a molecule, or of a reaction: a vector by names.

    Parameters
    ----------
    mol : rdkit.Chem.Mol, rdkit.Chem.rdChemReactions.ChemicalReaction or str
        A molecule; a reaction if the fingerprint is ``reaction``; or the SMILES of one.
    fingerprint : str
        ``morgan:2``, or another radius; ``atompair``; ``torsion``: sparse counts of RDKit's
        generators with their defaults. ``reaction``: RDKit's difference fingerprint with its
        defaults, products less reactants, which has negative counts and 2,048 places.

    Raises
    ------
    InvalidParameter
        There is no such fingerprint.
    InvalidVector
        RDKit cannot read the SMILES, it has no atom, or one kind is given for the other.
    """
    count = _counter(fingerprint)
    found = _read(mol, fingerprint) if isinstance(mol, str) else mol
    if isinstance(found, Chem.Mol) == (fingerprint == REACTION):
        kind = "reaction" if fingerprint == REACTION else "molecule"
        raise InvalidVector(expected=f"a {kind} for {fingerprint}", got=type(found).__name__)
    return {str(bit): number for bit, number in count(found).GetNonzeroElements().items()}


@cache
def _counter(fingerprint: str) -> Callable[[Any], Any]:
    if fingerprint == REACTION:
        return rdChemReactions.CreateDifferenceFingerprintForReaction
    generator: Any
    if found := _MORGAN.fullmatch(fingerprint):
        generator = rdFingerprintGenerator.GetMorganGenerator(radius=int(found[1]))
    elif fingerprint == "atompair":
        generator = rdFingerprintGenerator.GetAtomPairGenerator()
    elif fingerprint == "torsion":
        generator = rdFingerprintGenerator.GetTopologicalTorsionGenerator()
    else:
        raise InvalidParameter(
            expected="morgan:2 or another radius, atompair, torsion or reaction",
            got=repr(fingerprint),
            loc=("fingerprint",),
        )
    return generator.GetSparseCountFingerprint  # type: ignore[no-any-return]


def _read(smiles: str, fingerprint: str) -> Chem.Mol | ChemicalReaction:
    found: Any
    with rdBase.BlockLogs():
        if fingerprint != REACTION:
            found = Chem.MolFromSmiles(smiles)
            has_atoms = found is not None and found.GetNumAtoms() > 0
        else:
            try:
                found = rdChemReactions.ReactionFromSmarts(smiles, useSmiles=True)
                has_atoms = True
            except ValueError:
                has_atoms = False
    if not has_atoms:
        kind = "a reaction's" if fingerprint == REACTION else "a"
        raise InvalidVector(expected=f"{kind} SMILES that RDKit reads", got=repr(smiles)[:120])
    return found  # type: ignore[no-any-return]
