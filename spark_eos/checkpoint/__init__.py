"""The checkpoint of a streaming query: its files, the offset log's format, and the file systems that it can be on."""
