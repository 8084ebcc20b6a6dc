"""Decentralised multi-task learning over a graph that follows the tasks."""

from .estimator import FedGraphMTL
from .grouping import Grouping, group_clients

__all__ = ["FedGraphMTL", "Grouping", "group_clients"]
