"""The evidence that the promises hold; part of this project, but not of the installed package. PROOF.md has the
findings.
"""
