"""From a table to topics: Spark hands out data files, tasks read them and write their rows to Kafka."""
