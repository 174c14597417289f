# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Molecules
#
# GMM of count fingerprints equals RDKit's count-Tanimoto. Tests run the example. The page is also a notebook, [`docs/notebooks/molecules.py`](notebooks/molecules.py), for [jupytext](https://jupytext.readthedocs.io).

# %%
import gcws_search
from rdkit import Chem, DataStructs
from rdkit.Chem import rdFingerprintGenerator
smiles = {
    "aspirin": "CC(=O)Oc1ccccc1C(=O)O",
    "caffeine": "Cn1c(=O)c2c(ncn2C)n(C)c1=O",
    "theobromine": "Cn1cnc2c1c(=O)[nH]c(=O)n2C",
    "paracetamol": "CC(=O)Nc1ccc(O)cc1",
}
morgan = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2**31 - 1)
prints = {
    name: morgan.GetCountFingerprint(Chem.MolFromSmiles(text)) for name, text in smiles.items()
}
molecules = gcws_search.Collection.open("molecules.sqlite", dim=None)
molecules.add(
    [fingerprint.GetNonzeroElements() for fingerprint in prints.values()],
    ids=[*prints],
    payloads={"smiles": [*smiles.values()]},
)

# %%
[hit] = molecules.query(id="caffeine", limit=1)
hit.id, round(hit.score, 6)

# %%
hit.score == DataStructs.TanimotoSimilarity(prints["caffeine"], prints["theobromine"])

# %%
molecules.close()

# %% [markdown]
# - `dim=None` is an open space: coordinates are numbers up to 2³¹ − 2. The generator folds its 32-bit ids into that range (`fpSize`), so two of them rarely collide.
# - For the plain Tanimoto add sets: `set(fingerprint.GetNonzeroElements())`. Bit vectors of `GetFingerprint` have `GetOnBits()` instead; the 32-bit ones of `GetSparseFingerprint` are names: `{str(bit) for bit in bits.GetOnBits()}`.
# - For millions of molecules, add them some ten thousand at a time.
#
# ## Unfolded fingerprints
#
# Sparse fingerprints have 32-bit ids, and some 64-bit ones. As names of coordinates they are exact and never merged:

# %%
def by_name(name):
    fingerprint = morgan.GetSparseCountFingerprint(Chem.MolFromSmiles(smiles[name]))
    return {str(bit): count for bit, count in fingerprint.GetNonzeroElements().items()}
with gcws_search.Collection.open(":memory:", dim=None) as unfolded:
    unfolded.add([by_name(name) for name in smiles], ids=[*smiles])
    unfolded.query(by_name("theobromine"), limit=2)

# %% [markdown]
# `counts(mol, "morgan:2")` of `gcws_search.rdkit` makes this dict from a molecule or SMILES, and `gcws-search load` does so for a [file of SMILES](../fields.md#molecules). `molecules.explain("caffeine", "theobromine")` names the fingerprint bits that both have, and the contribution of each.
