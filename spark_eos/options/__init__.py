"""Options of source and sink: the table of all options, and how the values that users write are parsed."""
