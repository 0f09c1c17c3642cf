"""The evidence that the promises hold; not part of the installed package. PROOF.md has the findings."""
