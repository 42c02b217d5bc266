"""What exactly-once is worth under faults: one input, one schedule of faults and one judge, for several systems."""
