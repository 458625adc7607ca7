"""What becomes of batch normalisation between silos and server (methods reference, section 1, rule 5)."""
