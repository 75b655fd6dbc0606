from .node_job import NodeJob as NodeJob
from .node_job import SiteTrial as SiteTrial
from .node_job import check_outside_samples as check_outside_samples
from .node_job import run_node as run_node
from .node_job import study_keys as study_keys
from .node_job import try_site as try_site
from .study import local_cluster as local_cluster
from .study import run_on_peers as run_on_peers
