"""Descriptions of topics, groups and open transactions by the cluster."""
