"""What the cluster says about topics, groups and open transactions."""
