"""Decentralised multi-task learning over a graph that follows the tasks."""

from .grouping import Grouping, group_clients

__all__ = ["Grouping", "group_clients"]
