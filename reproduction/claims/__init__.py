"""The parts of `paper_claims.py`: what REPRODUCTION.md says about the GPU runs, computed from their tables."""
