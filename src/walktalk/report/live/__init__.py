"""A page of what runs, on this machine unless told otherwise: of a study (`live_page`), or of a cluster."""

from walktalk.report.live.cluster import ClusterPage
from walktalk.report.live.study import LivePage, live_page
from walktalk.report.live.watching import served_cluster

__all__ = ["ClusterPage", "LivePage", "live_page", "served_cluster"]
