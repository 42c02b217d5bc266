"""Delta and Iceberg tables: their kinds, files, histories and other writers."""
