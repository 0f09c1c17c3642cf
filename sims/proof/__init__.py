"""What shows that the promises hold: for this project, and not installed with it. PROOF.md says what was found."""
