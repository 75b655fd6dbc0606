from .cluster import ClusterPage as ClusterPage
from .cluster import served_cluster as served_cluster
from .study import LivePage as LivePage
from .study import live_page as live_page
