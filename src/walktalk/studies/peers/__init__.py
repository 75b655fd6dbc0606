"""A study on real peers: what `--engine peers` and `walktalk node` do. A door of its own, because it needs Zenoh."""

from walktalk.studies.peers.study import NodeJob, local_cluster, run_node, run_on_peers

__all__ = ["NodeJob", "local_cluster", "run_node", "run_on_peers"]
