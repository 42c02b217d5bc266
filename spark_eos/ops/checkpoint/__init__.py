"""The files of a checkpoint as Spark writes them, and moving some of them out of the way."""
