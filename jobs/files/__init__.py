"""Files of a folder as source of a job."""
