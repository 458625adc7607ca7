"""Real one-node Kubernetes clusters on this machine, each in a network namespace of its own without an uplink.

`python -m kube build` compiles what a cluster is made of into the cache; `up NAME`, `down NAME` and `exec NAME -- COMMAND` are for
people. Tests use `Cluster`.
"""

from kube.cluster import Cluster, sweep
from kube.components import Components, cache_folder
from kube.network import Cable
from kube.requirements import missing

__all__ = ["Cable", "Cluster", "Components", "cache_folder", "missing", "sweep"]
