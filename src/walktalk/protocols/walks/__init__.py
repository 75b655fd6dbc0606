"""Walks that do more than train: one file each. The machinery under them is Multi-Walk's, with and without failures."""

from walktalk.protocols.walks.token_saga import TokenSaga

__all__ = ["TokenSaga"]
