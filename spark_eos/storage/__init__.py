"""The file systems that checkpoints are on, opened as Spark opens them: by Hadoop's URIs and Hadoop's settings."""
