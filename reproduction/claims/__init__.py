"""The parts of `paper_claims.py`: what DETAILS.md says about the GPU runs, computed from their tables."""
